"""Falcon H1: attention and Mamba 2 side by side in every layer, reading the same normed input."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.ssm import mamba2
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        attended = linear(flat(attend(q, k, v, layer, self.attention)), w.unbiased.attn_output)
        x = x + (attended + mamba2(h, w, self.config, layer))
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)
