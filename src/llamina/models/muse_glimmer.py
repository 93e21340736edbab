"""Muse Glimmer: windowed layers are rotated, global ones are not; a gate on attention's output; norms on both sides."""

from llamina.models.blocks import gated_mlp, query_key_value
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Value, Weight, attend, flat, gated, linear, norm, rope, scale, softcap


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.window = c.count("attention.sliding_window")
        base = c.positive("rope.freq_base_swa", c.trained_base)
        self.rope = c.rope(neox=False, base=base, scaled=False)
        self.logit_scale = c.number("logit_scale")
        self.logit_cap = c.number("final_logit_softcapping", 30.0)

    def embed(self, tokens: Value, positions: Value) -> Value:
        return self.norm(super().embed(tokens, positions), None)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        local = self.config.windowed(layer, period=4)
        params = Attention(self.attention.scale, window=self.window if local else 0)
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = self.norm(q, w.attn_q_norm), self.norm(k, w.attn_k_norm)
        if local:
            q, k = rope(q, self.rope), rope(k, self.rope)
        attended = gated(linear(h, w.attn_gate), flat(attend(q, k, v, layer, params)), "sigmoid")
        x = x + self.norm_behind(linear(attended, w.attn_output), w.post_attention_norm)
        h = gated_mlp(self.norm(x, w.ffn_norm), w)
        return x + self.norm_behind(h, w.post_ffw_norm)

    def norm_behind(self, x: Value, w: Weight) -> Value:
        return norm(x, w, 1e-8)

    def head(self, x: Value) -> Value:
        return softcap(scale(super().head(x), self.logit_scale), self.logit_cap)
