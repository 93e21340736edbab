"""AFMoE (Arcee Trinity): gated attention, norms before and after; every fourth layer is global and does not rotate."""

import math

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.routing = c.routing("sigmoid")

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if layer % 4 < 3:
            settings = self.rope_local if local else self.rope_global
            q, k = rope(q, settings), rope(k, settings)
        attended = flat(attend(q, k, v, layer, params)) * activate(linear(h, w.attn_gate), "sigmoid")
        x = x + self.norm(linear(attended, w.attn_output), w.post_attention_norm)
        h = sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
        return x + self.norm(h, w.post_ffw_norm)
