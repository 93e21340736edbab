"""The frame that every picture encoder shares: patches, a ViT over them, and a projection to the text model's width.

A family's file says how a picture is cut into tiles, and how patches become rows. Patches that are merged into one row
stand side by side, so that a group of them is picked as a whole; attention sees all, so their order is free.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.errors import UnsupportedModel
from llamina.media import Encoder as Frame
from llamina.media import Patches as Patches
from llamina.models import Weights
from llamina.ops import Activation, Value, Weight, constant, embed, flat, linear, pick, scale, split
from llamina.quant import decode
from llamina.vision.interpolation import Interpolation, stretched
from llamina.vision.picture import Picture, Pixels

Part = str | Pixels  # text of the prompt, or a tile
ACTIVATIONS: tuple[Activation, ...] = ("gelu", "silu")  # that a file may ask for


class Encoder(Frame[Picture]):
    """The part of an mmproj file that sees."""

    kind = "vision"
    resized: Interpolation | None = None  # how learned positions are stretched to each tile: they come with its pixels
    merge = 1  # patches of a side that become one row, unless the file says otherwise

    def __init__(self, metadata: Mapping[str, Any], weights: Weights) -> None:
        super().__init__(metadata)
        self.metadata = metadata
        self.v, self.mm, self.resampler = (weights.part(name) for name in ("v", "mm", "resampler"))
        self.patch, self.side = self.config.count("patch_size"), self.config.count("image_size")
        self.merge = self.config.count("projector.scale_factor", self.merge)
        self.activation = next((name for name in ACTIVATIONS if metadata.get(f"clip.use_{name}") is True), "gelu_quick")
        self.mean, self.deviation = self._colours("image_mean"), self._colours("image_std")
        self.class_first = self.config.flag("class_token_first")  # in learned positions, as transformers has it
        self.setup()
        self.table = None if self.carried else self.learned_table()

    def _colours(self, key: str) -> npt.NDArray[np.float32]:
        value = self.config.get(key)
        if not isinstance(value, np.ndarray) or len(value) < 3 or not np.isfinite(value).all():
            raise UnsupportedModel(f"clip.vision.{key} is {value!r}: three numbers are expected")
        return np.array(value[:3], np.float32)

    # ---- from a picture to patches -----------------------------------------------------------------------

    @abstractmethod
    def parts(self, picture: Picture) -> list[Part]:
        """What stands for a picture: texts of the prompt, and tiles, in order."""

    def patches(self, tile: Pixels) -> Patches:
        """A tile's patches, in groups of those that are merged; behind them the class token's place, if there is one.

        What is left of a tile beside whole patches is cut off.
        """
        p, m = self.patch, self.merge
        height, width = tile.shape[0] // p, tile.shape[1] // p
        if height % m or width % m:
            raise UnsupportedModel(f"a tile of {width} x {height} patches cannot be merged by {m} x {m}")
        pixels = (tile[: height * p, : width * p].astype(np.float32) / np.float32(255) - self.mean) / self.deviation
        grouped = pixels.reshape(height // m, m, p, width // m, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        rows = grouped.reshape(height * width, 3 * p * p)
        y, x = np.mgrid[:height, :width]
        places = np.stack([y, x], -1).reshape(height // m, m, width // m, m, 2).transpose(0, 2, 1, 3, 4).reshape(-1, 2)
        tokens = (places[:, 0] * width + places[:, 1]).tolist()
        if self.carried:
            rows = np.concatenate([rows, self.learned(height, width)[places[:, 0], places[:, 1]]], 1)
        if "class_embd" in self.v:
            rows, places = np.pad(rows, ((0, 1), (0, 0))), np.pad(places, ((0, 1), (0, 0)))
            tokens.append(height * width)
        first = self.first_output
        outputs = list(range(first, first + height * width, m * m))
        return Patches(np.ascontiguousarray(rows), tokens, places.astype(np.int32), outputs, (width // m, height // m))

    def least_rows_of(self, tile: Pixels) -> int:
        step = self.patch * self.merge
        return int(tile.shape[0] // step) * int(tile.shape[1] // step)

    first_output = 0  # the first row that comes out

    @property
    def row_width(self) -> int:
        """Numbers of a patch as the plan sees it."""
        return 3 * self.patch**2 + (self.config.width if self.carried else 0)

    @property
    def carried(self) -> bool:
        """Whether learned positions come with a tile's pixels; else they are looked up by a patch's number."""
        return self.resized is not None

    def learned(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """Learned positions of a grid of that size, where they are carried."""
        assert self.resized is not None
        learned = self.v.position_embd
        side = math.isqrt(learned.shape[0])
        table = decode(learned.data, learned.format, learned.shape).reshape(side, side, -1)
        return stretched(table, height, width, self.resized)

    # ---- the plan ----------------------------------------------------------------------------------------

    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        """The rows that take the place of tokens in the text model."""
        return self.project(pick(self.hidden(tokens, rows), self.merge**2))

    def hidden(self, tokens: Value, rows: Value) -> Value:
        """What the layers make of the patches."""
        x = self.embed(tokens, rows)
        if before := self.v.get("pre_ln"):
            x = self.norm(x, before)
        for layer in range(self.layers):
            x = self.block(x, self.v.part(f"blk.{layer}"), layer)
        after = self.v.get("post_ln")
        return self.norm(x, after) if after else x

    @abstractmethod
    def project(self, x: Value) -> Value:
        """A row of the text model, from a patch (width,), or from those that are merged (patches, width)."""

    def embed(self, tokens: Value, rows: Value) -> Value:
        if not self.carried:
            x = self.patch_product(rows)
            return x + embed(tokens, self.table) if self.table else x
        pixels, learned = split(rows, 3 * self.patch**2, self.config.width)
        x, bias = self.patch_product(pixels), self.v.get("patch_embd.bias")
        return (x + bias if bias else x) + learned

    def patch_product(self, pixels: Value) -> Value:
        return linear(pixels, self.patch_matrix("patch_embd"))

    def patch_matrix(self, name: str) -> Weight:
        """A convolution whose step is its size: a matrix that is multiplied with each patch."""
        w = self.v.unbiased.get(name)
        if w is None:
            raise UnsupportedModel(f"the file has no tensor v.{name}: it is incomplete, or of another family")
        return w.shaped(self.config.width, 3 * self.patch * self.patch)

    @property
    def places(self) -> int:
        """Learned positions, but for the class token's."""
        return (self.side // self.patch) ** 2

    def learned_table(self) -> Weight | None:
        """Learned positions. The patches' bias is added to theirs, the class token to its own, which is the last."""
        learned = self.v.get("position_embd")
        if learned is None:
            return None
        table = decode(learned.data, learned.format, learned.shape).copy()
        if self.class_first:
            table = np.roll(table, -1, axis=0)
        n = self.places
        special = self.v.get("class_embd")
        if table.shape != (n + (special is not None), self.config.width):
            raise UnsupportedModel(f"v.position_embd is {list(table.shape)}: {n} patches of a tile do not match it")
        if bias := self.v.get("patch_embd.bias"):
            table[:n] += decode(bias.data, bias.format, bias.shape)
        if special is not None:
            table[n] += decode(special.data, special.format, special.shape).reshape(-1)
        return constant("v.position_embd", table)


def channels_last(w: Weight, group: int) -> Weight:
    """The matrix of a convolution over a group of patches: its inputs are channels, then places; ours the other way."""
    matrix = decode(w.data, w.format, w.shape).reshape(w.shape[0], -1, group)
    return constant(w.name, matrix.swapaxes(1, 2).reshape(w.shape[0], -1))


def mean(x: Value) -> Value:
    """Of patches that are merged: (patches, width) → (width,)."""
    if len(x.shape) == 1:
        return x
    first, *others = split(flat(x), *[x.shape[1]] * x.shape[0])
    for other in others:
        first = first + other
    return scale(first, 1 / x.shape[0])
