"""Nanbeige: llama whose layers may be gone through several times, each time with keys and values of their own."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=False)
        self.factors = self.rope_factors
        self.loops = c.count("num_loops", 1)
        self.norm_between = not c.flag("skip_loop_final_norm")

    def blocks(self, x: Value) -> Value:
        n = self.config.layers
        for i in range(self.loops * n):
            if i and i % n == 0 and self.norm_between:
                x = self.last_norm(x)
            x = self.block(x, self.weights.layer(i % n), i)
        return x

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer % self.config.layers)
        q, k = rope(q, self.rope, self.factors), rope(k, self.rope, self.factors)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)
