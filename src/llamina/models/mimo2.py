"""MiMo V2: attention sinks, a rotation of their own in windowed layers, values scaled, experts by sigmoid and bias."""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Routing, Value, attend, flat, linear, rope, scale


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        self.rope_global = c.rope(neox=True)
        self.rope_local = c.rope(neox=True, base=c.positive("rope.freq_base_swa", 10000.0), scaled=False)
        self.value_scale = c.number("attention.value_scale", 0.0) or 1.0
        self.routing = Routing(c.experts_used, "sigmoid", normalize=True)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.flag("attention.sliding_window_pattern", layer=layer)
        params = Attention(self.config.head_dim**-0.5, window=self.window if local else 0)
        settings = self.rope_local if local else self.rope_global
        q, k, v = query_key_value(self.norm(x, w.attn_norm), w.unbiased, self.config, layer)
        q, k = rope(q, settings), rope(k, settings)
        attended = flat(attend(q, k, v, layer, params, w.get("attn_sinks")))
        x = x + scale(linear(attended, w.unbiased.attn_output), self.value_scale)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing)
