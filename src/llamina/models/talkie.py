"""Talkie: norms without weights, q and k normed after the rotation, and each layer adds a share of the embedding."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, mul, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.logit_scale = self.config.number("logit_scale")

    def embed(self, tokens: Value, positions: Value) -> Value:
        return self.norm(super().embed(tokens, positions), None)

    def blocks(self, x: Value) -> Value:
        embedded = x
        for layer in range(self.config.layers):
            w = self.weights.layer(layer)
            x = self.block(x, w, layer) + mul(embedded, w.layer_output_scale)
        return x

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, None), w, self.config, layer)
        q, k = self.norm(rope(q, self.rope), None), self.norm(rope(k, self.rope), None)
        q = mul(q, w.attn_q_norm.shaped(q.shape[0], 1))  # one weight per head
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, None), w)

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, None)

    def head(self, x: Value) -> Value:
        return scale(super().head(x), self.logit_scale)
