"""Hunyuan, dense or with experts, and the language half of its VL: q and k are normed after the rotation."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        base, alpha = None, c.number("rope.scaling.alpha", 0.0)
        if alpha > 0:  # a longer context, by a larger base
            base = c.trained_base * alpha ** (c.head_dim / (c.head_dim - 2))
        self.rope = c.rope(neox=True, base=base, sections="blocks")
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = self.norm(rope(q, self.rope), w.attn_q_norm), self.norm(rope(k, self.rope), w.attn_k_norm)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
