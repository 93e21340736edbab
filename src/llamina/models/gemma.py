"""Gemma: embeddings scaled by √width, GeLU-gated MLP, NeoX rotation, tied head."""

from ..ops import Value, attend, flat, linear, rope
from .blocks import gated_mlp, query_key_value
from .decoder import Decoder
from .weights import Weights


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return super().embed(tokens, positions) * self.config.width**0.5

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
