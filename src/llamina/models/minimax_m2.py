"""MiniMax M2: olmoe with experts chosen by sigmoid and bias, their weights normed."""

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, heads, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.routing = self.config.routing("sigmoid", normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q = heads(self.norm(flat(q), w.attn_q_norm), q.shape[0])
        k = heads(self.norm(flat(k), w.attn_k_norm), k.shape[0])
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + experts(self.norm(x, w.ffn_norm), w, self.routing)
