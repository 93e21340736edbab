"""BitNet b1.58: llama with NeoX rotation, and norms before the last matrix of attention and of the MLP."""

from llamina.models.blocks import query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, gated, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        attended = flat(attend(rope(q, self.rope), rope(k, self.rope), v, layer, self.attention))
        x = x + linear(self.norm(attended, w.attn_sub_norm), w.attn_output)
        h = self.norm(x, w.ffn_norm)
        h = gated(linear(h, w.ffn_gate), linear(h, w.ffn_up), "silu")
        return x + linear(self.norm(h, w.ffn_sub_norm), w.ffn_down)

    def head(self, x: Value) -> Value:
        return linear(x, self.embeddings)
