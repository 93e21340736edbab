"""Qwen 3 TTS: qwen3 that reads text and says audio codes, which are the last of its tokens."""

import math

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Value, attend, flat, linear, pad, rope


class Model(Decoder):
    def setup(self) -> None:
        self.rope = self.config.rope(neox=True, sections="interleaved")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.attention)), w.attn_output)
        return x + gated_mlp(self.norm(x, w.ffn_norm), w)

    def head(self, x: Value) -> Value:
        codes = super().head(x)
        return pad(codes, max(0, self.embeddings.shape[0] - codes.size), -math.inf)
