"""MERaLiON: frames stacked, normed and compressed, and a gate between two matrices."""

from llamina.ops import Value, activate, gated, linear
from llamina.sound.whisper import Whisper


class Family(Whisper):
    def project(self, x: Value) -> Value:
        first, gate, up, last = (getattr(self.mm.part("mlp"), str(i)) for i in range(4))
        h = activate(linear(self.norm(x, self.mm.norm_pre), first), "silu")
        return linear(gated(linear(h, gate), linear(h, up), "silu"), last)
