"""Gemma 2: gemma with norms after attention and MLP, soft caps, every other layer windowed."""

import math

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, attend, flat, linear, rope, scale, softcap


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.window = c.count("attention.sliding_window", 4096)
        self.score_cap = c.number("attn_logit_softcapping", 50.0)
        self.logit_cap = c.number("final_logit_softcapping", 30.0)
        per_head = c.width / c.heads if c.layers == 46 else c.head_dim  # the 27B scales by its width
        self.scale = per_head**-0.5

    def embed(self, tokens: Value, positions: Value) -> Value:
        return scale(super().embed(tokens, positions), math.sqrt(self.config.width))

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=2)
        settings = self.rope_local if local else self.rope_global
        params = Attention(self.scale, window=self.window if local else 0, softcap=self.score_cap)
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = rope(q, settings), rope(k, settings)
        h = linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        x = x + self.norm(h, w.post_attention_norm)
        h = gated_mlp(self.norm(x, w.ffn_norm), w, "gelu")
        return x + self.norm(h, w.post_ffw_norm)

    def head(self, x: Value) -> Value:
        return softcap(super().head(x), self.logit_cap)
