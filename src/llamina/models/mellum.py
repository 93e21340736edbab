"""Mellum: qwen3 with experts, windows in three layers of four, and YaRN in the fourth alone."""

from dataclasses import replace

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window", 0, least=0)
        self.rope_global = c.rope(neox=True)
        self.rope_local = replace(c.rope(neox=True, scaled=False), magnitude=1.0)
        self.routing = c.routing(normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.window > 0 and self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        settings = self.rope_local if local else self.rope_global
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), settings), rope(self.norm(k, w.attn_k_norm), settings)
        x = x + linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        return x + experts(self.norm(x, w.ffn_norm), w, self.routing)
