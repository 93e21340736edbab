"""Kimi K3: kimi-linear with attention over earlier residual streams, and experts in a latent space.

Every `attn_res.block_size` layers the stream is banked and begins anew; the parts of a layer read a mixture of the bank
and the stream. Latent attention is gated. SiTU stands for SwiGLU: β·tanh(gate/β)·sigmoid(gate)·λ·tanh(up/λ).
"""

from llamina.models.blocks import latent_attention, latent_parts
from llamina.models.decoder import Decoder
from llamina.models.delta import kimi_delta, rates
from llamina.models.weights import Weights
from llamina.ops import (
    Attention,
    Value,
    activate,
    concat,
    expert_linear,
    flat,
    gated,
    heads,
    linear,
    mix,
    mul,
    pick,
    route,
    scale,
    softcap,
    softmax,
    split,
)


class Model(Decoder):
    bank: Value | None  # banked streams side by side

    def setup(self) -> None:
        c = self.config
        self.params = Attention(c.count("attention.key_length_mla") ** -0.5)
        self.routing = c.routing()
        self.period = c.count("attn_res.block_size", least=0)
        self.gate_cap, self.up_cap = c.positive("activation.situ_beta"), c.number("activation.situ_linear_beta")
        self.bound = c.number("kda.gate_lower_bound", 0.0)

    def embed(self, tokens: Value, positions: Value) -> Value:
        self.bank = None
        return super().embed(tokens, positions)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(self.mixed(x, self.bank, w, "attn_res_score"), w.attn_norm)
        banked = self.period > 0 and layer % self.period == 0
        if banked:
            self.bank = x if self.bank is None else concat(self.bank, x)
        attended = self.delta(h, w, layer) if "ssm_conv1d_q" in w else self.attend(h, w, layer)
        x = attended if banked else x + attended
        return x + self.feed_forward(self.norm(self.mixed(x, self.bank, w, "ffn_res_score"), w.ffn_norm), w)

    def last_norm(self, x: Value) -> Value:
        bank = None if self.bank is None else pick(self.bank)
        return super().last_norm(self.mixed(x, bank, self.weights, "output_res_score"))

    def mixed(self, x: Value, bank: Value | None, w: Weights, score: str) -> Value:
        """The banked streams and this one, weighed by what their norms score."""
        if bank is None:
            return x
        n = bank.size // x.size
        streams, scoring = heads(bank, n), getattr(w, score).shaped(1, x.size)
        scores = concat(flat(linear(self.norm(streams, None), scoring)), linear(self.norm(x, None), scoring))
        of_bank, of_x = split(softmax(scores), n, 1)
        return mix(streams, of_bank) + x * of_x

    def delta(self, h: Value, w: Weights, layer: int) -> Value:
        rate, a = rates(h, w, self.config), w.ssm_a.shaped(self.config.heads, 1)
        if self.bound:
            fade = scale(activate(scale(mul(rate, a), -1.0), "sigmoid"), self.bound)
        else:
            fade = mul(activate(rate, "softplus"), a)
        return kimi_delta(h, fade, w, self.config, layer)

    def attend(self, h: Value, w: Weights, layer: int) -> Value:
        attended = flat(latent_attention(*latent_parts(h, w, self.config), w, layer, self.params))
        if "attn_gate" in w:
            attended = gated(linear(h, w.attn_gate), attended, "sigmoid")
        return linear(attended, w.attn_output)

    def feed_forward(self, h: Value, w: Weights) -> Value:
        if "ffn_gate_inp" not in w:
            return self.mlp(h, w, "")
        chosen, weights = route(linear(h, w.ffn_gate_inp), self.routing, w.get("exp_probs_b"))
        latent = linear(h, w.ffn_routed_down) if "ffn_routed_down" in w else h
        gate, up = (expert_linear(latent, m, chosen) for m in (w.ffn_gate_exps, w.ffn_up_exps))
        routed = mix(expert_linear(self.situ(gate, up), w.ffn_down_exps, chosen), weights)
        if "ffn_routed_norm" in w:
            routed = self.norm(routed, w.ffn_routed_norm)
        if "ffn_routed_up" in w:
            routed = linear(routed, w.ffn_routed_up)
        return routed + self.mlp(h, w, "_shexp") if "ffn_gate_shexp" in w else routed

    def mlp(self, h: Value, w: Weights, suffix: str) -> Value:
        gate, up = (linear(h, getattr(w, f"ffn_{part}{suffix}")) for part in ("gate", "up"))
        return linear(self.situ(gate, up), getattr(w, f"ffn_down{suffix}"))

    def situ(self, gate: Value, up: Value) -> Value:
        return gated(gate, mul(softcap(gate, self.gate_cap), softcap(up, max(self.up_cap, 0.0))), "sigmoid")
