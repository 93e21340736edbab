"""MobileVLM (`ldp`) and MobileVLM V2 (`ldpv2`): LLaVA's ViT, an MLP, and depthwise convolutions over the patches' grid.

A convolution over the grid is one along the rows of the batch whose taps are rows of the grid apart. It is causal, so
what it makes of a place stands some rows further on: there are rows behind the patches for it, unseen by attention.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from llamina.models import Weights
from llamina.ops import (
    Attention,
    Value,
    Weight,
    activate,
    attend,
    clamp,
    constant,
    convolve,
    embed,
    flat,
    heads,
    linear,
    norm,
    pick,
    scale,
)
from llamina.quant import decode
from llamina.vision.encoder import Patches
from llamina.vision.families import mlp
from llamina.vision.picture import Pixels

Array = npt.NDArray[np.float32]
HEAD = 64  # channels whose means are taken together
EVERYTHING = Attention(1.0, causal=False)


class Family(mlp.Family):
    def setup(self) -> None:
        super().setup()
        self.attention = replace(self.attention, bounded=True)
        self.line = self.side // self.patch
        self.seen = self.line**2 + int("class_embd" in self.v)  # rows of the ViT
        self.delays = [self.line + 1, 2 * self.line + 2] if self.projector == "ldp" else [3 * self.line + 3]
        self.rows = self.seen + self.delays[-1]

    def learned_table(self) -> Weight | None:
        """As long as there are rows, so that a row is known by its number."""
        found = super().learned_table()
        table = (
            np.zeros((self.seen, self.config.width)) if found is None else decode(found.data, found.format, found.shape)
        )
        return constant("v.position_embd", np.pad(table, ((0, self.rows - self.seen), (0, 0))))

    def patches(self, tile: Pixels) -> Patches:
        found, more, half = super().patches(tile), self.rows - self.seen, self.line // 2
        y, x = np.mgrid[:half, :half].reshape(2, -1) * 2
        return replace(
            found,
            rows=np.pad(found.rows, ((0, more), (0, 0))),
            tokens=list(range(self.rows)),
            places=np.pad(found.places, ((0, more), (0, 0))),
            outputs=(self.first_output + self.delays[-1] + y * self.line + x).tolist(),
            grid=(half, half),
            windows=np.repeat(np.array([[0], [self.seen - 1]], np.int32), self.rows, axis=1),
        )

    def least_rows_of(self, tile: Pixels) -> int:
        return (self.line // 2) ** 2

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        x = self.hidden(tokens, rows)
        layers = [getattr(self.mm, f"model.mlp.{i}") for i in ((1, 3) if self.projector == "ldp" else (0, 2))]
        x = linear(activate(linear(x, layers[0]), "gelu"), layers[1])
        return self.mobile(x, tokens) if self.projector == "ldp" else self.pooled(x, tokens)

    def pooled(self, x: Value, tokens: Value) -> Value:
        """The mean of 2 x 2 patches, and what a convolution makes of these: together one of 6 x 6, taken by twos."""
        w = getattr(self.mm, "model.peg.0")
        kernel = decode(w.data, w.format, w.shape).reshape(-1, 3, 3).copy()
        kernel[:, 1, 1] += 1
        kernel = kernel.repeat(2, 1).repeat(2, 2) * np.float32(0.25)
        return pick(self.convolved(x, tokens, kernel, str(w), 0) + getattr(self.mm, "model.peg.0.bias"))

    def mobile(self, x: Value, tokens: Value) -> Value:
        """Two blocks of a depthwise convolution, a gate for each channel, and a mixing of channels."""
        blocks = [self.mm.part(f"model.mb_block.{i}.block") for i in (1, 2)]
        n = self.line**2
        delay = np.zeros((x.size, 2))
        delay[:, 0] = 1
        before = convolve(x, constant("mm.delay", delay), 0, apart=self.delays[0])
        x = before + self.gated_block(x, tokens, blocks[0], 0, n)
        return pick(self.gated_block(x, tokens, blocks[1], 1, n // 4))

    def gated_block(self, x: Value, tokens: Value, w: Weights, index: int, n: int) -> Value:
        kernel = getattr(w, "0.0")
        x = self.convolved(
            x, tokens, decode(kernel.data, kernel.format, kernel.shape).reshape(-1, 3, 3), str(kernel), index
        )
        x = norm(x, getattr(w, "0.1"), self.config.eps, "layer")
        x = x * hard_sigmoid(x)
        here = np.zeros((self.line, self.line), np.bool_)
        here[:: index + 1, :: index + 1] = True
        masked = heads(x * self.mask(tokens, here, self.delays[index], f"{kernel}.mean"), max(1, x.size // HEAD))
        nothing = scale(masked, 0.0)
        mean = scale(flat(attend(nothing, nothing, masked, self.layers + index, EVERYTHING)), self.rows / n)
        gate = linear(activate(linear(mean, getattr(w, "1.fc1")), "relu"), getattr(w, "1.fc2"))
        return norm(linear(x * hard_sigmoid(gate), getattr(w, "2.0")), getattr(w, "2.1"), self.config.eps, "layer")

    def convolved(self, x: Value, tokens: Value, kernel: Array, name: str, index: int) -> Value:
        """The grid, which stands as many rows late as the convolution of that index begins, convolved by [n, k, k].

        Taps to the left are kept from what a line's end is to the next one, those to the right from its beginning.
        """
        n, k, line = len(kernel), kernel.shape[1], self.line
        reach, columns = k // 3, np.arange(line)
        late, total = self.delays[index - 1] if index else 0, None
        for side, here in ((0, columns < line - reach), (1, columns >= 0), (2, columns >= reach)):
            part = slice(side * reach, side * reach + reach)
            taps = np.zeros((n, k, line), np.float32)
            taps[:, :, part] = kernel[:, :, part]
            w = constant(f"{name}.{side}", taps.reshape(n, -1)[:, : (k - 1) * line + k])
            seen = self.mask(tokens, np.broadcast_to(here, (line, line)), late, f"{w}.mask")
            y = convolve(x * seen, w, index)
            total = y if total is None else total + y
        assert total is not None
        return total

    def mask(self, tokens: Value, here: npt.NDArray[np.bool_], late: int, name: str) -> Value:
        """1 for the places of a grid that are to be seen, which stands so many rows late; 0 for all other rows."""
        table = np.zeros((self.rows, 1))
        first = self.first_output + late
        table[first : first + here.size, 0] = here.reshape(-1)
        return embed(tokens, constant(name, table))


def hard_sigmoid(x: Value) -> Value:
    return clamp(scale(x + constant("three", [3.0]), 1 / 6), 0.0, 1.0)
