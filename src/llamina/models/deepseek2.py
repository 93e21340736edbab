"""DeepSeek V2 and V3 (R1, Kimi K2, GLM 4.7 Flash) and Mistral 4: latent attention (MLA), experts beside shared ones."""

import math

from llamina.models.blocks import latent_attention, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, flat, heads, linear, reshape, rope, split, temper

GLM_FLASH = 154880  # the vocabulary by which its first files, that do not name their scoring, are known


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.latent = c.count("attention.kv_lora_rank")
        self.head_dim = c.count("attention.key_length_mla", c.head_dim)
        self.how = Attention(self.score_scale())
        self.temperature = c.number("attention.temperature_scale", 0.0)
        glm = c.layers in (47, 48) and self.weights.token_embd.shape[0] == GLM_FLASH
        self.routing = c.routing("sigmoid" if glm else "softmax")

    def score_scale(self) -> float:
        """1/√dim, stretched as YaRN wants it (the rotation's own stretch covers only the rotated part)."""
        moved = 1 + 0.1 * self.config.yarn_log_multiplier * math.log(1 / self.rope.scale)
        stretch = self.rope.magnitude * moved
        return stretch * stretch / math.sqrt(self.head_dim)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + linear(flat(self.attend(self.norm(x, w.attn_norm), w, layer)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        turned = self.rope.dims
        low_rank = self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm) if "attn_q_a" in w else None
        q = heads(linear(h, w.attn_q) if low_rank is None else linear(low_rank, w.attn_q_b), self.config.heads)
        if self.temperature:
            q = temper(q, self.config.count("attention.temperature_length"), self.temperature)
        q, q_turned = split(q, self.head_dim - turned, turned)
        latent, k_turned = split(linear(h, w.attn_kv_a_mqa), self.latent, turned)
        latent = self.norm(latent, w.attn_kv_a_norm)
        q_turned, k_turned = rope(q_turned, self.rope), rope(reshape(k_turned, 1, turned), self.rope)
        return latent_attention(q, q_turned, latent, k_turned, w, layer, self.how)
