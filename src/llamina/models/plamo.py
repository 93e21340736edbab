"""PLaMo: llama with NeoX rotation; attention and MLP run side by side."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        attended = linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + (attended + gated_mlp(h, w))
