"""MiniCPM 3: MiniCPM's scales; q, k and v from low ranks (MLA, expanded to every head), one rotated key for all."""

import math

from llamina.models.blocks import gated_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, concat, flat, heads, linear, reshape, rope, scale, split


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.factors = self.rope_factors
        self.latent = c.count("attention.kv_lora_rank")
        self.residual_scale = 1.4 / math.sqrt(c.layers)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), 12.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.attend(self.norm(x, w.attn_norm), w, layer)
        x = x + scale(linear(flat(h), w.attn_output), self.residual_scale)
        return x + scale(gated_mlp(self.norm(x, w.ffn_norm), w), self.residual_scale)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        c, turned = self.config, self.rope.dims
        plain = c.head_dim - turned
        q = linear(self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm), w.attn_q_b)
        q_plain, q_turned = split(heads(q, c.heads), plain, turned)
        latent, k_turned = split(linear(h, w.attn_kv_a_mqa), self.latent, turned)
        kv = heads(linear(self.norm(latent, w.attn_kv_a_norm), w.attn_kv_b), c.heads)
        k_plain, v = split(kv, plain, c.value_dim)
        q = concat(q_plain, rope(q_turned, self.rope, self.factors))
        k = concat(k_plain, rope(reshape(k_turned, 1, turned), self.rope, self.factors))
        return attend(q, k, v, layer, self.attention)

    def head(self, x: Value) -> Value:
        return super().head(scale(x, 256 / self.config.width))
