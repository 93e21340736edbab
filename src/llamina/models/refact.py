"""Refact: llama with ALiBi for rotation; only q, k and v have biases."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, flat, linear


class Model(Decoder):
    def setup(self) -> None:
        self.params = Attention(self.attention.scale, alibi=8.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.params)), w.unbiased.attn_output)
        return x + self.feed_forward(self.norm(x, w.ffn_norm), w)

    def feed_forward(self, h: Value, w: Weights) -> Value:
        if "ffn_up" not in w:  # llama.cpp has no experts here: it leaves the matrices out
            return activate(h, "silu")
        return gated_mlp(h, w.unbiased)
