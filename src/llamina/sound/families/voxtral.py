"""Voxtral: frames stacked, and an MLP.

llama.cpp takes the mean of two frames first, which the model does not do, and ends the process for four stacked frames,
as all files have them; here they are encoded as by the model's authors.
"""

from llamina.ops import Value
from llamina.sound.whisper import Whisper


class Family(Whisper):
    before = "[BEGIN_AUDIO]"

    def project(self, x: Value) -> Value:
        return self.two_layers(x)
