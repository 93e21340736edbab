"""Whisper's encoder, which most families have: two convolutions, and a transformer over frames.

A convolution is a matrix that is multiplied with neighbouring frames, side by side. The second takes three outputs of
the first and steps by two, so a row of the batch has the frames of all three: the first is computed three times for two
frames, which is little beside the transformer. Where there is nothing to the left of the sound, the second sees zeros,
not what the first would make of silence: its bias is a column of the matrix, multiplied with one, or with zero there.
"""

from dataclasses import replace

import numpy as np

from llamina.errors import UnsupportedModel
from llamina.media import Patches
from llamina.ops import Value, activate, add, constant, embed, flat, linear, mul, pick, scale, split
from llamina.sound.encoder import Encoder
from llamina.sound.mel import STRETCH, Mel, count, stretches
from llamina.sound.sound import Sound

ROWS = STRETCH // 2  # of the transformer, in 30 seconds
TAPS = 3  # frames of a convolution


class Whisper(Encoder):
    pooled = False  # whether the mean of two rows becomes one; else as many as the file says, side by side

    def setup(self) -> None:
        self.group = 2 if self.pooled else self.config.count("projector.stack_factor")  # rows that become one
        if self.group > ROWS:
            raise UnsupportedModel(f"clip.audio.projector.stack_factor is {self.group}: at most {ROWS} are known here")
        self.ragged = -ROWS % self.group  # rows of zeros that the last ones are stacked with
        if self.ragged:
            self.attention = replace(self.attention, bounded=True)
        self.check_positions(ROWS)
        n = self.config.width
        first, bias = self.tensor("a.conv1d.1.weight", n, self.mels, TAPS), self.tensor("a.conv1d.1.bias", n, 1)
        self.first = constant("a.conv1d.1", np.concatenate([first.reshape(n, -1), bias], 1))
        second = self.tensor("a.conv1d.2.weight", n, n, TAPS)
        self.second = [constant(f"a.conv1d.2.{tap}", second[:, :, tap]) for tap in range(TAPS)]
        self.bias = constant("a.conv1d.2.bias", self.tensor("a.conv1d.2.bias", n))

    def stretches(self, sound: Sound) -> list[Mel]:
        return stretches(sound.samples, self.mels)

    def least_rows(self, medium: Sound) -> int:
        return count(medium.samples) * -(-ROWS // self.group)

    def patches(self, tile: Mel) -> Patches:
        """Three outputs of the first convolution for each row: for each, three frames and whether it is there."""
        frames = np.pad(tile, ((2, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(frames, TAPS, axis=0)  # [outputs from -1 on, mels, taps]
        seen = np.concatenate([windows.reshape(len(windows), -1), np.ones((len(windows), 1), np.float32)], 1)
        seen[0] = 0
        rows = np.stack([seen[tap : tap + STRETCH : 2] for tap in range(TAPS)], 1).reshape(ROWS, -1)
        tokens, n = list(range(ROWS)), ROWS + self.ragged
        bounds = None
        if self.ragged:
            rows = np.pad(rows, ((0, self.ragged), (0, 0)))
            tokens += [0] * self.ragged
            bounds = np.array([[0] * n, [ROWS - 1] * n], np.int32)
        outputs = list(range(0, n, self.group))
        return Patches(rows, tokens, np.zeros((n, 2), np.int32), outputs, (len(outputs), 1), bounds)

    @property
    def row_width(self) -> int:
        return TAPS * (TAPS * self.mels + 1)

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        windows = split(rows, *[TAPS * self.mels + 1] * TAPS)
        first, *others = (activate(linear(window, self.first), "gelu_erf") for window in windows)
        x = linear(first, self.second[0])
        for output, matrix in zip(others, self.second[1:], strict=True):
            x = x + linear(output, matrix)
        x = activate(add(x, self.bias), "gelu_erf") + embed(tokens, self.a.position_embd)
        return self.project(self.merged(self.transformed(x), windows[1]))

    def merged(self, x: Value, window: Value) -> Value:
        """Rows normed, and as many as become one put together."""
        if self.pooled:
            one, other = split(flat(pick(x, self.group)), x.size, x.size)
            return self.normed(scale(one + other, 0.5))
        x = self.normed(x)
        if self.ragged:
            x = mul(x, split(window, TAPS * self.mels, 1)[1])  # rows that fill up are zeros
        return flat(pick(x, self.group))
