"""How a weight lies in the device's memory: made once at load, read by every kernel that multiplies or dequantizes.

Quantized weights are tiles of 8 rows by 128 columns, row group after row group, so that a warp's lanes load
neighbouring 16 bytes:

    low    i32 [groups, tiles, 8 g, 4 t, words]  the lower plane of codes; of 8 bits [groups, tiles, 2 passes, 8, 4, 4]
    high   i32 [groups, tiles, 8 g, 4 t, words]  the other plane, of formats of 3, 5 and 6 bits
    scale  i32 [groups, tiles, 8 g, words]       `formats.SCALE_BYTES`; of Q4_K and Q5_K [groups, tiles / 2, 8, 4]
    top    f32 or i32 [groups, tiles / 2, 8 g]   scales of 256 columns

`tiles` says how codes lie in words. Matrices of experts follow one another, each padded to whole groups. F16 and
BF16 weights are rows of float16 whose columns are in fragment order within each 128 (`activations`); F32 weights
are rows as they are.

`gain` is a power of two that tensor-core kernels multiply weights by before they round them to float16, so that
matrices of very small or large numbers keep their precision; the products are divided by it.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamina.backends.cuda.kernels.formats import BY_256, FORMS, PLAIN, SCALE_BYTES, Form, bound, split
from llamina.errors import UnsupportedModel
from llamina.quant import format_of
from llamina.quant.bits import U8, pack

GROUP = 8
TILE = 128
CHUNK = 1 << 22  # columns of rows that are re-laid at a time


@dataclass(frozen=True, slots=True)
class Array:
    """What is allocated on the device: Triton's name of the type, and a shape."""

    type: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * {"i8": 1, "fp16": 2}.get(self.type, 4)


@dataclass(frozen=True, slots=True)
class Layout:
    """A weight [experts, rows, columns] of a format on the device."""

    format: str
    rows: int
    columns: int
    experts: int = 1

    @classmethod
    def of(cls, format: str, rows: int, columns: int, experts: int = 1) -> "Layout":
        if format not in FORMS and format not in PLAIN:
            known = ", ".join((*PLAIN, *FORMS))
            raise UnsupportedModel(f"{format} weights have no layout on the GPU: those that do are {known}")
        return cls(format, rows, columns, experts)

    @property
    def form(self) -> Form | None:
        """None for F32, F16 and BF16."""
        return FORMS.get(self.format)

    @property
    def padded(self) -> int:
        """Columns, with what fills the last tile."""
        return self.columns if self.format == "F32" else -(-self.columns // TILE) * TILE

    @property
    def tiles(self) -> int:
        return self.padded // TILE

    @property
    def units(self) -> int:
        """Tiles, or pairs of them where scales are of 256 columns."""
        return self.tiles // 2 if self.form and self.form.scales in BY_256 else self.tiles

    @property
    def groups(self) -> int:
        """Row groups of one expert."""
        return -(-self.rows // GROUP)

    @property
    def arrays(self) -> dict[str, Array]:
        form, groups, tiles = self.form, self.experts * self.groups, self.tiles
        if form is None:
            kind = "fp32" if self.format == "F32" else "fp16"
            return {"low": Array(kind, (self.experts * self.rows, self.padded))}
        lanes = (2, GROUP, 4, 4) if form.low == 8 else (GROUP, 4, form.low)
        arrays = {"low": Array("i32", (groups, tiles, *lanes))}
        if form.high:
            arrays["high"] = Array("i32", (groups, tiles, GROUP, 4, form.high))
        if form.scales == "u6 min":
            arrays["scale"] = Array("i32", (groups, tiles // 2, GROUP, 4))
        else:
            arrays["scale"] = Array("i32", (groups, tiles, GROUP, SCALE_BYTES[form.scales] // 4))
        if form.scales in BY_256 and form.scales != "u6 min":
            kind = "i32" if form.scales == "u4 min for 16" else "fp32"
            arrays["top"] = Array(kind, (groups, tiles // 2, GROUP))
        return arrays

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def pack(self, data: U8) -> dict[str, NDArray[Any]]:
        """The stored bytes of all rows, uint8 [..., bytes of a row], as the arrays that kernels read."""
        source = np.ascontiguousarray(data).reshape(self.experts, self.rows, -1)
        if self.form is None:
            return {"low": self._plain(source)}
        result = {
            name: np.zeros(array.shape, np.float32 if array.type == "fp32" else np.int32)
            for name, array in self.arrays.items()
        }
        step = max(1, CHUNK // (self.padded * GROUP)) * GROUP
        for expert in range(self.experts):
            for start in range(0, self.rows, step):
                first = expert * self.groups + start // GROUP
                parts = self._tiled(self.form, source[expert, start : start + step])
                for name, part in parts.items():
                    target = result[name][first : first + len(part)]
                    target[...] = part.view(target.dtype).reshape(target.shape)
        return result

    def gain(self, data: U8) -> float:
        """A power of two that brings the largest scale to 2⁻¹⁰ or more, below 2⁻⁹; BF16's largest number to 2¹⁴.

        It is 1 for F16 and F32.
        """
        if self.format in ("F16", "F32"):
            return 1.0
        rows = np.ascontiguousarray(data).reshape(self.experts * self.rows, -1)
        if self.form:
            largest, aim = bound(self.format, rows.reshape(-1, format_of(self.format).nbytes)), -10
        else:
            bits = rows.view("<u2") & 0x7FFF
            largest, aim = float((np.where(bits < 0x7F80, bits, 0).max(initial=0).astype("<u4") << 16).view("<f4")), 14
        if not 0 < largest < np.inf:
            return 1.0
        return float(2.0 ** np.clip(aim - np.floor(np.log2(largest)), -100, 100))

    def _plain(self, source: U8) -> NDArray[Any]:
        rows = source.reshape(self.experts * self.rows, -1)
        if self.format == "F32":
            return rows.view("<f4")
        values = rows.view("<f2")
        if self.format == "BF16":
            wide = (rows.view("<u2").astype("<u4") << 16).view("<f4")
            with np.errstate(over="ignore"):
                values = (wide * np.float32(self.gain(source))).astype("<f2")
        padded = np.zeros((len(values), self.padded), np.float16)
        padded[:, : self.columns] = values
        return fragments(padded)

    def _tiled(self, form: Form, rows: U8) -> dict[str, U8]:
        """Rows of blocks → the bytes of each array, of whole groups."""
        kind = format_of(self.format).type
        blocks = rows.reshape(len(rows), -1, kind.nbytes)
        parts = split(self.format, blocks)
        groups = -(-len(rows) // GROUP)
        codes = _padded(parts.codes, groups * GROUP, self.padded)
        runs = codes.reshape(groups, GROUP, self.tiles, 4, 32).transpose(0, 2, 1, 3, 4)  # group tile g t | 32
        low = pack(runs & np.uint8((1 << form.low) - 1), form.low, 4 * form.low)
        if form.low == 8:
            low = low.reshape(groups, self.tiles, GROUP, 4, 2, 16).transpose(0, 1, 4, 2, 3, 5)
        result = {"low": np.ascontiguousarray(low)}
        if form.high:
            result["high"] = pack(runs >> np.uint8(form.low), form.high, 4 * form.high)
        scale = _padded(parts.scale, groups * GROUP, self.tiles * SCALE_BYTES[form.scales])
        result["scale"] = _by_tile(scale, self.tiles // 2 if form.scales == "u6 min" else self.tiles)
        if parts.top.size:
            result["top"] = _by_tile(_padded(parts.top, groups * GROUP, self.tiles // 2 * 4), self.tiles // 2)
        return result


def fragments(values: NDArray[Any]) -> NDArray[Any]:
    """Columns in fragment order: within 128, column 32 t + 4 s + 2 e + h goes to 16 s + 8 h + 2 t + e."""
    cut = values.reshape(*values.shape[:-1], -1, 4, 8, 2, 2)  # t s e h
    return np.ascontiguousarray(np.moveaxis(cut, (-4, -3, -2, -1), (-2, -4, -1, -3))).reshape(values.shape)


def _padded(part: U8, rows: int, width: int) -> U8:
    """[rows, blocks, n] as [more rows, width], filled with zeros."""
    flat = part.reshape(len(part), -1)
    result = np.zeros((rows, width), np.uint8)
    result[: len(flat), : flat.shape[1]] = flat
    return result


def _by_tile(rows: U8, tiles: int) -> U8:
    """[rows, tiles · n] → [groups, tiles, 8, n]."""
    cut = rows.reshape(len(rows) // GROUP, GROUP, tiles, -1)
    return np.ascontiguousarray(cut.transpose(0, 2, 1, 3))
