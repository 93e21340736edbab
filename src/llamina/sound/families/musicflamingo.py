"""Audio Flamingo 3 and Music Flamingo: the mean of two frames, normed, and an MLP."""

from llamina.ops import Value
from llamina.sound.whisper import Whisper


class Family(Whisper):
    before = "<sound>"
    pooled = True

    def project(self, x: Value) -> Value:
        return self.two_layers(x)
