"""OLMo: LayerNorm without weights; q, k and v may be clamped."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.rope = self.config.rope(neox=False)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, None), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, None), w)

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, None)
