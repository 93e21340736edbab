"""Qwen3-ASR and the ears of Qwen3-Omni: three convolutions in two dimensions, and a transformer over 8 seconds each.

Each second is convolved by itself, and its rows are counted from zero again.
"""

import numpy as np
import numpy.typing as npt

from llamina.media import Patches, Run, Stem
from llamina.ops import Value, activate, add, constant, embed, linear, pick
from llamina.sound.encoder import Encoder
from llamina.sound.mel import STEP, Mel, mirrored
from llamina.sound.sound import Sound

SECOND, WINDOW = 100, 800  # frames
SIDE = 3  # of a convolution's square; it steps by two
LAYERS = 3
ROWS = 13  # of a second


class Family(Encoder):
    before, after = "<|audio_start|>", "<|audio_end|>"

    def setup(self) -> None:
        self.check_positions(ROWS)
        self.channels = self.tensor_size("a.conv2d.1.bias")
        self.stems = [self._stem(layer + 1) for layer in range(LAYERS)]

    def _stem(self, number: int) -> Stem:
        """A convolution as a matrix that is multiplied with squares: channels, then time, then frequency."""
        n, channels = self.channels, 1 if number == 1 else self.channels
        w = self.tensor(f"a.conv2d.{number}.weight", n, channels, SIDE, SIDE).swapaxes(2, 3).reshape(n, -1)
        matrix, bias = constant(f"a.conv2d.{number}", w), constant("bias", self.tensor(f"a.conv2d.{number}.bias", n))

        def forward(tokens: Value, positions: Value, rows: Value) -> Value:
            return pick(activate(add(linear(rows, matrix), bias), "gelu_erf"))

        return Stem(forward, w.shape[1])

    def stretches(self, sound: Sound) -> list[Mel]:
        """8 seconds each, and what is left, filled up with zeros to whole seconds."""
        mel = mirrored(sound.samples, self.mels)
        mel = np.pad(mel, ((0, -len(mel) % SECOND), (0, 0)))
        return [mel[start : start + WINDOW] for start in range(0, len(mel), WINDOW)]

    def least_rows(self, medium: Sound) -> int:
        return -(-(len(medium.samples) // STEP + 1) // SECOND) * ROWS

    def stemmed(self, stem: int, tile: npt.NDArray[np.float32], run: Run) -> npt.NDArray[np.float32]:
        """[frames, mels] → [seconds, time, frequency, channels], of half the time and frequency after each."""
        x = tile.reshape(-1, SECOND, self.mels, 1) if stem == 0 else tile
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        squares = np.lib.stride_tricks.sliding_window_view(padded, (SIDE, SIDE), (1, 2))[:, ::2, ::2]
        return run(squares.reshape(-1, x.shape[3] * SIDE * SIDE)).reshape(*squares.shape[:3], -1)

    def patches(self, tile: npt.NDArray[np.float32]) -> Patches:
        """A row for each time: channels, then frequencies."""
        rows = np.ascontiguousarray(tile.transpose(0, 1, 3, 2).reshape(-1, self.row_width))
        n = len(rows)
        return Patches(rows, [i % ROWS for i in range(n)], np.zeros((n, 2), np.int32), list(range(n)), (n, 1))

    @property
    def row_width(self) -> int:
        return self.channels * -(-self.mels // 8)

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        x = linear(rows, self.a.conv_out) + embed(tokens, self.a.position_embd)
        return self.project(pick(self.normed(self.transformed(x))))

    def project(self, x: Value) -> Value:
        return self.two_layers(x)
