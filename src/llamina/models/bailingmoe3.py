"""Ling 3: kimi-linear with bounded decays; rotated latent attention, gated per head; experts cut off after the gate."""

import math

from llamina.models.blocks import latent_attention, latent_parts
from llamina.models.decoder import Decoder
from llamina.models.delta import kimi_delta, rates
from llamina.models.weights import Weights
from llamina.ops import (
    Attention,
    Value,
    activate,
    clamp,
    expert_linear,
    flat,
    gated,
    linear,
    mix,
    mul,
    reshape,
    rope,
    route,
    scale,
)


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.params = Attention(c.count("attention.key_length_mla") ** -0.5)
        self.rope = c.rope(neox=bool(c.rope_sections), sections="blocks")
        self.bound = c.number("kda.gate_lower_bound")
        self.routing = c.routing()

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        x = x + (self.delta(h, w, layer) if "ssm_conv1d_q" in w else self.attend(h, w, layer))
        h = self.norm(x, w.ffn_norm)
        if "ffn_gate_inp" not in w:
            return x + self.mlp(h, w, layer, "")
        return x + (self.experts(h, w, layer) + self.mlp(h, w, layer, "_shexp"))

    def delta(self, h: Value, w: Weights, layer: int) -> Value:
        rate = mul(rates(h, w, self.config), w.ssm_a.shaped(self.config.heads, 1))
        return kimi_delta(h, scale(activate(rate, "sigmoid"), self.bound), w, self.config, layer)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        n = self.config.heads
        q, q_rope, latent, k_rope = latent_parts(h, w, self.config)
        q_rope, k_rope = rope(q_rope, self.rope), rope(k_rope, self.rope)
        attended = latent_attention(q, q_rope, latent, k_rope, w, layer, self.params)
        gate = activate(linear(h, w.attn_gate.shaped(n, self.config.width)), "sigmoid")
        return linear(flat(attended * reshape(gate, n, 1)), w.attn_output)

    def mlp(self, h: Value, w: Weights, layer: int, suffix: str) -> Value:
        gate, up = (linear(h, getattr(w, f"ffn_{part}{suffix}")) for part in ("gate", "up"))
        limit = self.config.number("swiglu_clamp_shexp", 0.0, layer)
        return linear(limited(gate, up, limit), getattr(w, f"ffn_down{suffix}"))

    def experts(self, h: Value, w: Weights, layer: int) -> Value:
        chosen, weights = route(linear(h, w.ffn_gate_inp), self.routing, w.get("exp_probs_b"))
        gate, up = (expert_linear(h, m, chosen) for m in (w.ffn_gate_exps, w.ffn_up_exps))
        up = limited(gate, up, self.config.number("swiglu_clamp_exp", 0.0, layer))
        return mix(expert_linear(up, w.ffn_down_exps, chosen), weights)


def limited(gate: Value, up: Value, limit: float) -> Value:
    """silu(gate) × up, silu(gate) cut off above the limit and up on both sides; 0 is none."""
    if not limit:
        return gated(gate, up, "silu")
    return mul(clamp(activate(gate, "silu"), -math.inf, limit), clamp(up, -limit, limit))
