"""Nemotron, Minitron and Jais 2: LayerNorm, NeoX rotation, a plain MLP of squared ReLUs."""

from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + plain_mlp(self.norm(x, w.ffn_norm), w, "relu_sqr")
