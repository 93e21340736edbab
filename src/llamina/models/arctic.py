"""Arctic: llama's attention and a small MLP; the experts beside them look at the layer's input."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
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
        h = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = h + gated_mlp(self.norm(h, w.ffn_norm), w)
        return h + experts(self.norm(x, w.ffn_norm_exps), w, self.routing)
