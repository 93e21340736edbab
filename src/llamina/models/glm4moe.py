"""GLM 4.5 to 4.7: NeoX rotation, q and k normed in the larger ones, experts beside a shared one after dense layers."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True, sections="blocks")
        self.routing = self.config.routing("sigmoid")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        if "attn_q_norm" in w:
            q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.post_attention_norm), w, self.routing)
