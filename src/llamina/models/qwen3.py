"""Qwen 3 and Qwen 3 MoE: NeoX rotation, each head of q and k normed before it; experts where the file has them."""

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Routing, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.routing = Routing(c.experts_used, normalize=True, scale=c.number("expert_weights_scale", 1.0) or 1.0)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        return x + (experts(h, w, self.routing) if self.config.experts else gated_mlp(h, w))
