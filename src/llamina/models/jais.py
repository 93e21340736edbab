"""Jais: ALiBi instead of positions, scores scaled by 1/dim, LayerNorm, a gated MLP."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        c = self.config
        self.params = Attention(1 / c.head_dim, alibi=c.number("attention.max_alibi_bias", 0.0))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        x = x + linear(flat(attend(q, k, v, layer, self.params)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)
