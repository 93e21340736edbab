"""Qwen2-Audio, and the ears of Qwen2.5-Omni: the mean of two frames, normed and projected."""

from llamina.ops import Value, linear
from llamina.sound.whisper import Whisper


class Family(Whisper):
    before, after = "<|audio_bos|>", "<|audio_eos|>"
    pooled = True

    def project(self, x: Value) -> Value:
        return linear(x, self.mm.fc)
