"""Ultravox: frames stacked, normed, gated, normed and projected."""

from llamina.ops import Value, gated, linear, norm, split
from llamina.sound.whisper import Whisper

EPS = 1e-6  # of the projector's norms


class Family(Whisper):
    def project(self, x: Value) -> Value:
        mlp = self.mm.part("mlp")
        h = linear(norm(x, self.mm.norm_pre, EPS), getattr(mlp, "1"))
        up, gate = split(h, h.size // 2, h.size // 2)
        return linear(norm(gated(gate, up, "silu"), self.mm.norm_mid, EPS), getattr(mlp, "2"))
