"""Each block format as the device keeps it: codes in planes of bits, and the scales of runs of them.

A value is scale · level (+ minimum), and a level is code - offset, or what a table has for the code. Codes of 3, 5 and 6 bits are
two planes. A format here says how its blocks come apart into codes and bytes of scales; where these go is `layout`'s
matter, and what kernels do with them that of `tiles`. Values come out as `quant.decode` has them, bit for bit in float32.

Codebook formats (IQ1, IQ2, IQ3) are spelt out: the codes name levels, no longer entries of a codebook. That makes them larger than in the
file; `Layout.nbytes` says by how much.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamina.quant import grids
from llamina.quant.bits import U8, fields, half

SCALE_BYTES = {  # how scales are kept, and how many bytes of them 128 columns of a row have
    "f16": 8,  # float16 for 32 columns
    "f16 min": 16,  # float16 scale and minimum for 32 columns
    "e8m0": 4,  # exponent of a power of two for 32 columns, halved
    "e4m3": 8,  # 8-bit float for 16 columns, halved
    "i8 for 16": 8,  # signed byte for 16 columns, times the float32 of 256 columns
    "i8 for 32": 4,  # signed byte for 32 columns, times the float32 of 256 columns
    "u4 min for 16": 8,  # nibbles of scale and minimum for 16 columns, times the two float16 of 256 columns
    "u6 min": 8,  # 16 bytes for 256 columns, Q4_K's header as it is
}
BY_256 = ("i8 for 16", "i8 for 32", "u4 min for 16", "u6 min")  # columns come in blocks of 256
BY_16 = ("e4m3", "i8 for 16", "u4 min for 16")  # two scales to a run of 32
MINIMA = ("f16 min", "u4 min for 16", "u6 min")


@dataclass(frozen=True, slots=True)
class Parts:
    """Blocks taken apart: [..., block] codes, [..., n] bytes of scales, and the 4 bytes of 256 columns, where there are."""

    codes: U8
    scale: U8
    top: U8 | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """What kernels must know of a format, and how its blocks come apart."""

    low: int  # bits of the plane with the lower bits of codes
    high: int  # bits of the other plane, or 0
    scales: str  # one of SCALE_BYTES
    split: Callable[[U8], Parts]
    offset: int = 0
    levels: tuple[int, ...] = ()  # by code, where they are not code - offset

    def __str__(self) -> str:
        """What kernels are compiled for: "low/high/offset/scales/levels"."""
        return f"{self.low}/{self.high}/{self.offset}/{self.scales}/{','.join(map(str, self.levels))}"

    @property
    def largest(self) -> int:
        """The largest level there is, without its sign."""
        if self.levels:
            return max(abs(v) for v in self.levels)
        return max(self.offset, (1 << (self.low + self.high)) - 1 - self.offset) if self.low < 8 else 128


# ---- blocks of 32, 64 and 128 -------------------------------------------------------------------------------


def _q4_0(b: U8) -> Parts:
    return Parts(fields(b[..., 2:], 4, 16), b[..., :2])


def _q4_1(b: U8) -> Parts:
    return Parts(fields(b[..., 4:], 4, 16), b[..., :4])


def _q5_0(b: U8) -> Parts:
    return Parts(fields(b[..., 6:], 4, 16) | fields(b[..., 2:6], 1, 1) << np.uint8(4), b[..., :2])


def _q5_1(b: U8) -> Parts:
    return Parts(fields(b[..., 8:], 4, 16) | fields(b[..., 4:8], 1, 1) << np.uint8(4), b[..., :4])


def _q8_0(b: U8) -> Parts:
    return Parts(b[..., 2:], b[..., :2])


def _mxfp4(b: U8) -> Parts:
    return Parts(fields(b[..., 1:], 4, 16), b[..., :1])


def _nvfp4(b: U8) -> Parts:
    scale = b[..., :4] & np.uint8(127)  # ggml ignores the sign, but reads 0x7f as zero only without it
    top = b[..., :4] == np.uint8(127)
    return Parts(fields(b[..., 4:], 4, 8), np.where(top, np.uint8(0), scale))


def _q1_0(b: U8) -> Parts:
    return Parts(fields(b[..., 2:], 1, 1), np.tile(b[..., :2], 4))


def _q2_0(b: U8) -> Parts:
    return Parts(fields(b[..., 2:], 2, 1), np.tile(b[..., :2], 2))


def _tq1_0(b: U8) -> Parts:
    trits = [_trits(b[..., :32], 5), _trits(b[..., 32:48], 5), _trits(b[..., 48:52], 4)]
    return Parts(np.concatenate(trits, axis=-1), np.tile(b[..., 52:], 8))


def _tq2_0(b: U8) -> Parts:
    return Parts(fields(b[..., :64], 2, 32), np.tile(b[..., 64:], 8))


def _trits(data: U8, count: int) -> U8:
    """The first `count` trits of bytes, plane by plane (see `quant.ternary`)."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    fraction = (data[..., None, :] * powers).astype(np.uint16)
    return (fraction * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(*data.shape[:-1], -1)


# ---- blocks of 256 ------------------------------------------------------------------------------------------


def _q2_k(b: U8) -> Parts:
    return Parts(fields(b[..., 16:80], 2, 32), b[..., :16], b[..., 80:84])


def _q3_k(b: U8) -> Parts:
    codes = fields(b[..., 32:96], 2, 32) | fields(b[..., :32], 1, 32) << np.uint8(2)
    scale = (fields(b[..., 96:104], 4, 8) | fields(b[..., 104:108], 2, 4) << np.uint8(4)) - np.uint8(32)
    return Parts(codes, scale, _float(b, 108))


def _q4_k(b: U8) -> Parts:
    return Parts(fields(b[..., 16:], 4, 32), b[..., :16])


def _q5_k(b: U8) -> Parts:
    return Parts(fields(b[..., 48:], 4, 32) | fields(b[..., 16:48], 1, 32) << np.uint8(4), b[..., :16])


def _q6_k(b: U8) -> Parts:
    codes = fields(b[..., :128], 4, 64) | fields(b[..., 128:192], 2, 32) << np.uint8(4)
    return Parts(codes, b[..., 192:208], _float(b, 208))


def _iq4_xs(b: U8) -> Parts:
    scale = (fields(b[..., 4:8], 4, 1) | fields(b[..., 2:4], 2, 1) << np.uint8(4)) - np.uint8(32)
    return Parts(fields(b[..., 8:], 4, 16), scale, _float(b, 0))


def _iq2_xxs(b: U8) -> Parts:
    parts = b[..., 2:].reshape(*b.shape[:-1], 8, 8)
    words = np.ascontiguousarray(parts[..., 4:]).view("<u4")  # [..., 8, 1]
    codes = _IQ2_XXS[parts[..., :4]] | _signs(words, 4)
    return Parts(_flat(codes, b), _odd(words[..., 0] >> 28), _float(b, 0, 0.125))


def _iq2_xs(b: U8) -> Parts:
    index = np.ascontiguousarray(b[..., 2:66]).view("<u2")
    codes = _IQ2_XS[index & 511] | _EVEN[index >> 9] << np.uint8(2)
    return Parts(_flat(codes, b), _odd(fields(b[..., 66:74], 4, 1)), _float(b, 0, 0.125))


def _iq2_s(b: U8) -> Parts:
    index = b[..., 2:34] | fields(b[..., 66:74], 2, 1).astype(np.uint16) << 8
    codes = _IQ2_S[index] | _NEGATIVE[b[..., 34:66]] << np.uint8(2)
    return Parts(_flat(codes, b), _odd(fields(b[..., 74:82], 4, 1)), _float(b, 0, 0.125))


def _iq3_xxs(b: U8) -> Parts:
    words = np.ascontiguousarray(b[..., 66:]).view("<u4")[..., None]  # [..., 8, 1]
    codes = _flat(_IQ3_XXS[b[..., 2:66]], b) | _flat(_signs(words, 8), b)
    return Parts(codes, _odd(words[..., 0] >> 28), _float(b, 0, 0.25))


def _iq3_s(b: U8) -> Parts:
    index = b[..., 2:66] | fields(b[..., 66:74], 1, 1).astype(np.uint16) << 8
    codes = _flat(_IQ3_S[index], b) | _flat(_NEGATIVE[b[..., 74:106]] << np.uint8(3), b)
    return Parts(codes, _odd(fields(b[..., 106:110], 4, 1)), _float(b, 0))


def _iq1_s(b: U8) -> Parts:
    words = np.ascontiguousarray(b[..., 34:]).view("<u2")  # [..., 8]
    high = _flat(words[..., None] >> _THREES & 7, b)
    codes = _IQ1[b[..., 2:34] | high << 8].reshape(*words.shape, 32)
    codes = codes | (words >> 13 & 4).astype(np.uint8)[..., None]  # bit 15: shifted down
    return Parts(_flat(codes, b), _odd(words >> 12 & 7), _float(b, 0, 0.125))


def _iq1_m(b: U8) -> Parts:
    words = np.ascontiguousarray(b[..., 48:]).view("<u2")  # [..., 4]
    nibbles = (words >> 12) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(nibbles, axis=-1, keepdims=True).astype("<u2").view(np.uint8)
    high = fields(b[..., 32:48], 4, 1)  # [..., 32]
    codes = _IQ1[b[..., :32] | (high & 7).astype(np.uint16) << 8] | (high >> 1 & np.uint8(4))[..., None]
    return Parts(_flat(codes, b), _odd(_flat(words[..., None] >> _THREES & 7, b)), _float(d, 0, 0.125))


_THREES = np.arange(0, 12, 3, dtype=np.uint16)
_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)
_IQ2_LEVELS, _IQ3_XXS_LEVELS = (8, 25, 43), (4, 12, 20, 28, 36, 44, 52, 62)
_IQ3_S_LEVELS = (1, 3, 5, 7, 9, 11, 13, 15)


def _codes(grid: NDArray[np.int8], levels: tuple[int, ...]) -> U8:
    """A codebook whose elements are places in `levels`."""
    return np.searchsorted(levels, grid).astype(np.uint8)


_IQ1 = _codes(grids.IQ1_GRID, (-1, 0, 1))
_IQ2_XXS, _IQ2_XS, _IQ2_S = (
    _codes(grid, _IQ2_LEVELS) for grid in (grids.IQ2_XXS_GRID, grids.IQ2_XS_GRID, grids.IQ2_S_GRID)
)
_IQ3_XXS, _IQ3_S = _codes(grids.IQ3_XXS_GRID, _IQ3_XXS_LEVELS), _codes(grids.IQ3_S_GRID, _IQ3_S_LEVELS)
_NEGATIVE, _EVEN = (grids.SIGNS < 0).astype(np.uint8), (grids.EVEN_SIGNS < 0).astype(np.uint8)


def _signs(words: NDArray[np.uint32], bit: int) -> U8:
    """`bit` where one of 32 values is negative, from four 7-bit fields of a word: [..., 1] → [..., 4, 8]."""
    return _EVEN[words >> _SEVENS & 127] * np.uint8(bit)


def _odd(scale: NDArray[Any]) -> U8:
    return (2 * scale + 1).astype(np.uint8)


def _float(b: U8, at: int, factor: float = 1.0) -> U8:
    """The float16 at a byte of each block as the bytes of a float32."""
    return (half(b, at) * np.float32(factor)).view(np.uint8)


def _flat(values: NDArray[Any], b: U8) -> NDArray[Any]:
    return values.reshape(*b.shape[:-1], -1)


_IQ4 = tuple(int(v) for v in grids.IQ4_LEVELS)
_FP4 = tuple(int(v) for v in grids.FP4_DOUBLED)
_IQ1_TABLE = (-7, 1, 9, 0, -9, -1, 7, 0)  # eight times -1, 0 or 1, and 1 up or down
_IQ2_TABLE = (*_IQ2_LEVELS, 0, *(-v for v in _IQ2_LEVELS), 0)
_IQ3_XXS_TABLE = (*_IQ3_XXS_LEVELS, *(-v for v in _IQ3_XXS_LEVELS))
_IQ3_S_TABLE = (*_IQ3_S_LEVELS, *(-v for v in _IQ3_S_LEVELS))

FORMS: dict[str, Form] = {
    "Q4_0": Form(4, 0, "f16", _q4_0, offset=8),
    "Q4_1": Form(4, 0, "f16 min", _q4_1),
    "Q5_0": Form(4, 1, "f16", _q5_0, offset=16),
    "Q5_1": Form(4, 1, "f16 min", _q5_1),
    "Q8_0": Form(8, 0, "f16", _q8_0),
    "MXFP4": Form(4, 0, "e8m0", _mxfp4, levels=_FP4),
    "NVFP4": Form(4, 0, "e4m3", _nvfp4, levels=_FP4),
    "Q1_0": Form(1, 0, "f16", _q1_0, levels=(-1, 1)),
    "Q2_0": Form(2, 0, "f16", _q2_0, offset=1),
    "TQ1_0": Form(2, 0, "f16", _tq1_0, offset=1),
    "TQ2_0": Form(2, 0, "f16", _tq2_0, offset=1),
    "Q2_K": Form(2, 0, "u4 min for 16", _q2_k),
    "Q3_K": Form(2, 1, "i8 for 16", _q3_k, offset=4),
    "Q4_K": Form(4, 0, "u6 min", _q4_k),
    "Q5_K": Form(4, 1, "u6 min", _q5_k),
    "Q6_K": Form(4, 2, "i8 for 16", _q6_k, offset=32),
    "IQ4_NL": Form(4, 0, "f16", _q4_0, levels=_IQ4),
    "IQ4_XS": Form(4, 0, "i8 for 32", _iq4_xs, levels=_IQ4),
    "IQ3_XXS": Form(4, 0, "i8 for 32", _iq3_xxs, levels=_IQ3_XXS_TABLE),
    "IQ3_S": Form(4, 0, "i8 for 32", _iq3_s, levels=_IQ3_S_TABLE),
    "IQ2_XXS": Form(2, 1, "i8 for 32", _iq2_xxs, levels=_IQ2_TABLE),
    "IQ2_XS": Form(2, 1, "i8 for 16", _iq2_xs, levels=_IQ2_TABLE),
    "IQ2_S": Form(2, 1, "i8 for 16", _iq2_s, levels=_IQ2_TABLE),
    "IQ1_S": Form(2, 1, "i8 for 32", _iq1_s, levels=_IQ1_TABLE),
    "IQ1_M": Form(2, 1, "i8 for 16", _iq1_m, levels=_IQ1_TABLE),
}
PLAIN = ("F32", "F16", "BF16")
