"""Audio Flamingo 3 and Music Flamingo: the mean of two frames, normed, and an MLP."""

from llamina.ops import Value
from llamina.sound.encoder import Encoder


class Family(Encoder):
    before = "<sound>"
    pooled = True

    def project(self, x: Value) -> Value:
        return self.two_layers(x)
