"""GLM 4 (0414) and GLM-OCR: norms before and behind attention and MLP; gate and up in one matrix.

Files made for images have M-RoPE, which pairs elements as NeoX does; the others pair neighbours.
"""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=bool(self.config.rope_sections), sections="blocks")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        h = linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        x = x + self.norm(h, w.post_attention_norm)
        return x + self.norm(gated_mlp(self.norm(x, w.ffn_norm), w), w.post_ffw_norm)
