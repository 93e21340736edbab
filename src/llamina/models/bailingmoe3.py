"""Ling 3: kimi-linear with bounded decays; rotated latent attention, gated per head; experts cut off after the gate."""

from llamina.models.blocks import experts, gated_mlp, latent_attention, latent_parts
from llamina.models.decoder import Decoder
from llamina.models.delta import kimi_delta, rates
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, activate, flat, linear, mul, reshape, rope, scale


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
        return x + self.feed_forward(self.norm(x, w.ffn_norm), w, layer)

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

    def feed_forward(self, h: Value, w: Weights, layer: int) -> Value:
        limit, shared = (self.config.number(f"swiglu_clamp_{part}", 0.0, layer) for part in ("exp", "shexp"))
        if "ffn_gate_inp" not in w:
            return gated_mlp(h, w, silu_limit=shared)
        return experts(h, w, self.routing, silu_limit=limit) + gated_mlp(h, w, suffix="_shexp", silu_limit=shared)
