"""Gemma: embeddings scaled by √width, GeLU-gated MLP, NeoX rotation, tied head."""

import math

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
