"""GPT-NeoX and Pythia: LayerNorm, a part of each head rotated, attention and MLP mostly side by side."""

from llamina.models.blocks import plain_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    norm_kind = "layer"

    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)
        self.parallel = self.config.flag("use_parallel_residual", True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        attended = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        h = self.norm(x if self.parallel else attended, w.ffn_norm)
        return attended + plain_mlp(h, w, "gelu")
