"""Whisper's encoder, which every family of sound encoders here shares: two convolutions, and a transformer over frames.

A convolution is a matrix that is multiplied with neighbouring frames, side by side. The second takes three outputs of the
first and steps by two, so a row of the batch has the frames of all three: the first is computed three times for two frames,
which is little beside the transformer. Where there is nothing to the left of the sound, the second sees zeros, not what the
first would make of silence: its bias is a column of the matrix, and the number for it is one, or zero there.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina import media
from llamina.errors import UnsupportedModel
from llamina.media import Patches
from llamina.models import Weights
from llamina.ops import Attention, Value, Weight, activate, add, constant, embed, flat, linear, mul, pick, scale, split
from llamina.quant import decode
from llamina.sound.mel import STRETCH, Mel, count, stretches
from llamina.sound.sound import Sound

Part = str | Mel  # text of the prompt, or 30 seconds
ROWS = STRETCH // 2  # of the transformer, in 30 seconds
TAPS = 3  # frames of a convolution


class Encoder(media.Encoder[Sound]):
    """The part of an mmproj file that hears."""

    kind = "audio"
    activation = "gelu_erf"
    before, after = "", ""  # texts around a sound
    pooled = False  # whether the mean of two rows becomes one; else as many as the file says, side by side

    def __init__(self, metadata: Mapping[str, Any], weights: Weights) -> None:
        super().__init__(metadata)
        self.a, self.mm = weights.part("a"), weights.part("mm.a")
        self.weights = weights
        self.mels = self.config.count("num_mel_bins")
        self.group = 2 if self.pooled else self.config.count("projector.stack_factor")  # rows that become one
        if self.group > ROWS:
            raise UnsupportedModel(f"clip.audio.projector.stack_factor is {self.group}: at most {ROWS} are known here")
        self.ragged = -ROWS % self.group  # rows of zeros that the last ones are stacked with
        if self.ragged:
            self.attention = Attention(self.attention.scale, causal=False, bounded=True)
        self.first, self.second = self._convolution(1), self._convolution(2)
        if self.a.position_embd.shape[0] < ROWS:
            raise UnsupportedModel(f"a.position_embd has {self.a.position_embd.shape[0]} positions: {ROWS} are expected")
        self.setup()

    def parts(self, medium: Sound) -> list[Part]:
        parts: list[Part] = [self.before, *stretches(medium.samples, self.mels), self.after]
        return [part for part in parts if not isinstance(part, str) or part]

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
        outputs = [activate(linear(window, self.first[0]), self.activation) for window in windows]
        x = linear(outputs[0], self.second[0])
        for output, matrix in zip(outputs[1:], self.second[1:TAPS], strict=True):
            x = x + linear(output, matrix)
        x = activate(add(x, self.second[TAPS]), "gelu_erf") + embed(tokens, self.a.position_embd)
        for layer in range(self.layers):
            x = self.block(x, self.a.part(f"blk.{layer}"), layer)
        return self.project(self.merged(x, windows[1]))

    def merged(self, x: Value, window: Value) -> Value:
        """Rows normed, and as many as become one put together."""
        if self.pooled:
            one, other = split(flat(pick(x, self.group)), x.size, x.size)
            return self.normed(scale(one + other, 0.5))
        x = self.normed(x)
        if self.ragged:
            x = mul(x, split(window, TAPS * self.mels, 1)[1])  # rows that fill up are zeros
        return flat(pick(x, self.group))

    def normed(self, x: Value) -> Value:
        after = self.a.get("post_ln")
        return self.norm(x, after) if after else x

    @abstractmethod
    def project(self, x: Value) -> Value:
        """A row of the text model, from those that are stacked."""

    def two_layers(self, x: Value) -> Value:
        """The MLP that several families end with."""
        mlp = self.mm.part("mlp")
        return linear(activate(linear(x, getattr(mlp, "1")), "gelu_erf"), getattr(mlp, "2"))

    def _convolution(self, number: int) -> list[Weight]:
        """The first as one matrix with its bias, the second as a matrix for each frame and its bias."""
        w, b = (self._tensor(f"conv1d.{number}", kind) for kind in ("weight", "bias"))
        expected = (self.config.width, self.mels if number == 1 else self.config.width, TAPS)
        if w.shape != expected or b.size != len(w):
            message = f"a.conv1d.{number} is {list(w.shape)}: a convolution of {TAPS} frames, {list(expected)}, is expected"
            raise UnsupportedModel(message)
        if number == 1:
            return [constant("a.conv1d.1", np.concatenate([w.reshape(len(w), -1), b.reshape(-1, 1)], 1))]
        matrices = [constant(f"a.conv1d.2.{tap}", w[:, :, tap]) for tap in range(TAPS)]
        return [*matrices, constant("a.conv1d.2.bias", b.reshape(-1))]

    def _tensor(self, name: str, kind: str) -> npt.NDArray[np.float32]:
        found = self.weights.get(f"a.{name}.{kind}")
        if found is None:
            raise UnsupportedModel(f"the file has no tensor a.{name}.{kind}: it is incomplete, or of another family")
        return decode(found.data, found.format, found.shape)
