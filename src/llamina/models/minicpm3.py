"""MiniCPM 3: MiniCPM's scales; q, k and v from low ranks (MLA, expanded to every head), one rotated key for all."""

import math

from llamina.models.blocks import gated_mlp, latent_attention
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, flat, heads, linear, reshape, rope, scale, split


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
        c, rope_dims = self.config, self.rope.dims
        q = linear(self.norm(linear(h, w.attn_q_a), w.attn_q_a_norm), w.attn_q_b)
        q, q_rope = split(heads(q, c.heads), c.head_dim - rope_dims, rope_dims)
        latent, k_rope = split(linear(h, w.attn_kv_a_mqa), self.latent, rope_dims)
        latent, k_rope = self.norm(latent, w.attn_kv_a_norm), reshape(k_rope, 1, rope_dims)
        q_rope, k_rope = (rope(x, self.rope, self.factors) for x in (q_rope, k_rope))
        return latent_attention(q, q_rope, latent, k_rope, w, layer, self.attention)

    def head(self, x: Value) -> Value:
        return super().head(scale(x, 256 / self.config.width))
