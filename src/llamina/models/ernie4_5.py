"""ERNIE 4.5, dense or with experts beside shared ones: llama, but a bias of the attention's output is left out."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=False)
        self.routing = self.config.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.unbiased.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
