"""Qwen 3, MoE and VL, OpenELM: NeoX rotation, each head of q and k normed before it; experts where there are some.

Behind the embedding of a VL's picture are rows that are added after the first layers (DeepStack).
"""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope, softmax, split


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True, sections="interleaved")
        self.routing = c.routing(normalize=True)
        self.deep = c.count("n_deepstack_layers", 0, least=0)
        self.stacked: list[Value] = []

    @property
    def row_width(self) -> int:
        return self.width * (1 + self.deep)

    def hidden(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        self.stacked = []
        if rows is not None and self.deep:
            rows, *self.stacked = split(rows, *[self.width] * (1 + self.deep))
        return super().hidden(tokens, positions, rows)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        x = x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
        return x + self.stacked[layer] if layer < len(self.stacked) else x

    def classify(self, x: Value) -> Value:
        return softmax(super().classify(x))  # of yes and no
