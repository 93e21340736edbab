"""Falcon: attention and MLP side by side, LayerNorm, NeoX rotation; the 40B norms each half for itself."""

from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        before_attention = self.norm(x, w.attn_norm_2) if "attn_norm_2" in w else h
        q, k, v = query_key_value(before_attention, w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        attended = linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + (plain_mlp(h, w, "gelu") + attended)
