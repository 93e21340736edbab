"""Qwen 2 MoE: qwen2's attention; experts beside one shared expert that a sigmoid gate weighs."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.routing = self.config.routing(normalize=False)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
