"""Step 3.5: normed q and k, a gate for each head; windowed layers rotate all, global ones half; experts by sigmoid."""

from dataclasses import replace

from llamina.models.blocks import experts, gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, attend, flat, linear, reshape, rope


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        whole, base = c.rope(neox=True), c.positive("rope.freq_base_swa", 10000.0)
        self.rope_global = replace(whole, dims=whole.dims // 2)
        self.rope_local = replace(
            c.rope(neox=True, base=base, scaled=False), dims=c.count("rope.dimension_count_swa", whole.dims)
        )
        factors = self.rope_factors  # for the widest rotation: others begin as it does
        self.factors = factors.rows(0, self.rope_global.dims // 2) if factors else None
        self.routing = c.routing("sigmoid")

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.flag("attention.sliding_window_pattern", layer=layer)
        params = Attention(self.config.head_dim**-0.5, window=self.window if local else 0)
        settings, factors = (self.rope_local, None) if local else (self.rope_global, self.factors)
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q = self.norm(q, w.attn_q_norm) if "attn_q_norm" in w else q
        k = self.norm(k, w.attn_k_norm) if "attn_k_norm" in w else k
        attended = attend(rope(q, settings, factors), rope(k, settings, factors), v, layer, params)
        if "attn_gate" in w:
            attended = attended * reshape(activate(linear(h, w.attn_gate), "sigmoid"), attended.shape[0], 1)
        x = x + linear(flat(attended), w.attn_output)
        return x + self.feed_forward(self.norm(x, w.ffn_norm), w, layer)

    def feed_forward(self, h: Value, w: Weights, layer: int) -> Value:
        limit, shared = (self.config.number(f"swiglu_clamp_{part}", 0.0, layer) for part in ("exp", "shexp"))
        if "ffn_gate_inp" not in w:
            return gated_mlp(h, w, silu_limit=shared)
        return experts(h, w, self.routing, silu_limit=limit) + gated_mlp(h, w, suffix="_shexp", silu_limit=shared)
