"""Maple: normed q and k, rotation in the windowed layers only, experts with clamped gates."""

from dataclasses import replace

from llamina.models.blocks import experts, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Routing, Value, attend, flat, linear, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        settings = c.rope(neox=True, base=c.positive("rope.freq_base_swa", c.trained_base))
        self.rope = replace(settings, dims=c.count("rope.dimension_count_swa", settings.dims))
        self.routing = Routing(c.experts_used, normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.flag("attention.sliding_window_pattern", layer=layer)
        params = Attention(self.config.head_dim**-0.5, window=self.window if local else 0)
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w, self.config, layer)
        q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if local:
            q, k = rope(q, self.rope), rope(k, self.rope)
        x = x + linear(flat(attend(q, k, v, layer, params)), w.attn_output)
        limit = self.config.number("swiglu_clamp_exp", layer=layer)
        return x + experts(self.norm(x, w.ffn_norm), w, self.routing, limit=limit)
