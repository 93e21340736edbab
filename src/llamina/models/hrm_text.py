"""HRM-Text: two stacks of layers taken in turn, the low one several times to each time of the high one.

Every pass has keys and values of its own. Norms have no weights; a gate is on attention's output.
"""

from llamina.errors import ModelFileError
from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, Weight, attend, flat, gated, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.embedding_scale = c.number("embedding_scale", 1.0) or 1.0
        self.depth, self.high_cycles = c.count("hrm.layers_per_stack"), c.count("hrm.h_cycles")
        self.low_cycles = c.count("hrm.l_cycles")
        passes = self.depth * self.high_cycles * (self.low_cycles + 1)
        if c.layers != passes:
            raise ModelFileError(f"hrm_text.block_count is {c.layers}: its stacks and cycles make {passes} passes")

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), self.embedding_scale)

    def blocks(self, x: Value) -> Value:
        low: Value | Weight = getattr(self.weights, "hrm.z_l_init")
        done = 0
        for _ in range(self.high_cycles):
            for _ in range(self.low_cycles):
                low = self.stack(x + low, 0, done)
                done += self.depth
            x = self.stack(x + low, self.depth, done)
            done += self.depth
        return x

    def stack(self, x: Value, first: int, done: int) -> Value:
        """The layers from `first` on; `done` layers have been gone through before."""
        for i in range(self.depth):
            x = self.block(x, self.weights.layer(first + i), done + i)
        return self.norm(x, None)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, None)
        q, k, v = query_key_value(h, w, self.config, layer)
        attended = attend(rope(q, self.rope), rope(k, self.rope), v, layer, self.attention)
        x = x + linear(gated(linear(h, w.attn_gate), flat(attended), "sigmoid"), w.attn_output)
        return x + gated_mlp(self.norm(x, None), w)

    def last_norm(self, x: Value) -> Value:
        return x  # each stack ends with one
