"""GLM-ASR: frames normed and stacked, an MLP, and an embedding before and behind each 30 seconds."""

import numpy as np
import numpy.typing as npt

from llamina.ops import Value
from llamina.quant import decode
from llamina.sound.whisper import Whisper


class Family(Whisper):
    def setup(self) -> None:
        super().setup()
        ends = (getattr(self.weights.part("v"), name) for name in ("boi", "eoi"))
        self.ends = [decode(w.data, w.format, w.shape).reshape(1, -1) for w in ends]

    def normed(self, x: Value) -> Value:
        return self.norm(super().normed(x), self.mm.norm_pre)

    def project(self, x: Value) -> Value:
        return self.two_layers(x)

    def arrange(self, rows: npt.NDArray[np.float32], grid: tuple[int, int]) -> npt.NDArray[np.float32]:
        return np.concatenate([self.ends[0], rows, self.ends[1]])
