"""StableLM and Orion: LayerNorm and NeoX rotation; without a second norm, attention and MLP run side by side."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        if "attn_q_norm" in w:  # StableLM 2 12B: each head has weights of its own
            q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm) if "ffn_norm" in w else h, w)
