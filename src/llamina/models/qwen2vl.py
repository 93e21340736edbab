"""Qwen 2 and 2.5 VL, PaddleOCR, openPangu Embedded: qwen2 with M-RoPE where the file has it, and no other factors."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True, sections="blocks")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)

    def head(self, x: Value) -> Value:
        return linear(x, self.weights.unbiased.get("output") or self.embeddings)
