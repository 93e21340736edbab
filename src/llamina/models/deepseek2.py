"""DeepSeek V2 and V3 (R1, Kimi K2, GLM 4.7 Flash) and Mistral 4: latent attention (MLA), experts beside shared ones."""

import math

from llamina.models.blocks import latent_attention, latent_parts, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, flat, linear, rope, temper

GLM_FLASH = 154880  # the vocabulary by which its first files, that do not name their scoring, are known


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.how = Attention(self.score_scale())
        self.temperature = c.number("attention.temperature_scale", 0.0)
        glm = c.layers in (47, 48) and self.weights.token_embd.shape[0] == GLM_FLASH
        self.routing = c.routing("sigmoid" if glm else "softmax")

    def score_scale(self) -> float:
        """1/√dim, stretched as YaRN wants it (the rotation's own stretch covers only the rotated part)."""
        moved = 1 + 0.1 * self.config.yarn_log_multiplier * math.log(1 / self.rope.scale)
        stretch = self.rope.magnitude * moved
        return stretch * stretch / math.sqrt(self.config.count("attention.key_length_mla", self.config.head_dim))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + linear(flat(self.attend(self.norm(x, w.attn_norm), w, layer)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        q, q_turned, latent, k_turned = latent_parts(h, w, self.config)
        q_turned, k_turned = rope(q_turned, self.rope), rope(k_turned, self.rope)
        if self.temperature:
            length = self.config.count("attention.temperature_length")
            q, q_turned = temper(q, length, self.temperature), temper(q_turned, length, self.temperature)
        return latent_attention(q, q_turned, latent, k_turned, w, layer, self.how)
