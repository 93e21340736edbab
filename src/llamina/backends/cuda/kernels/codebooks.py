"""Formats whose blocks do not hold codes as they are: entries of codebooks (IQ1, IQ2, IQ3), or five trits to a byte
(TQ1_0).

Their codes are spelt out: what is stored on the device names a level and its sign, no longer an entry. In NumPy
here, by `relay` on the GPU.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamina.quant import grids
from llamina.quant.bits import U8, fields, half

IQ2_LEVELS, IQ3_XXS_LEVELS, IQ3_S_LEVELS = (8, 25, 43), (4, 12, 20, 28, 36, 44, 52, 62), (1, 3, 5, 7, 9, 11, 13, 15)

Blocks = tuple[U8, U8, U8]  # codes, bytes of scales, and the float32 of 256 columns as bytes


def _iq2_xxs(b: U8) -> Blocks:
    parts = b[..., 2:].reshape(*b.shape[:-1], 8, 8)
    words = np.ascontiguousarray(parts[..., 4:]).view("<u4")  # [..., 8, 1]
    codes = _IQ2_XXS[parts[..., :4]] | _signs(words, 4)
    return (_flat(codes, b), _odd(words[..., 0] >> 28), _float(b, 0, 0.125))


def _iq2_xs(b: U8) -> Blocks:
    index = np.ascontiguousarray(b[..., 2:66]).view("<u2")
    codes = _IQ2_XS[index & 511] | _EVEN[index >> 9] << np.uint8(2)
    return (_flat(codes, b), _odd(fields(b[..., 66:74], 4, 1)), _float(b, 0, 0.125))


def _iq2_s(b: U8) -> Blocks:
    index = b[..., 2:34] | fields(b[..., 66:74], 2, 1).astype(np.uint16) << 8
    codes = _IQ2_S[index] | _NEGATIVE[b[..., 34:66]] << np.uint8(2)
    return (_flat(codes, b), _odd(fields(b[..., 74:82], 4, 1)), _float(b, 0, 0.125))


def _iq3_xxs(b: U8) -> Blocks:
    words = np.ascontiguousarray(b[..., 66:]).view("<u4")[..., None]  # [..., 8, 1]
    codes = _flat(_IQ3_XXS[b[..., 2:66]], b) | _flat(_signs(words, 8), b)
    return (codes, _odd(words[..., 0] >> 28), _float(b, 0, 0.25))


def _iq3_s(b: U8) -> Blocks:
    index = b[..., 2:66] | fields(b[..., 66:74], 1, 1).astype(np.uint16) << 8
    codes = _flat(_IQ3_S[index], b) | _flat(_NEGATIVE[b[..., 74:106]] << np.uint8(3), b)
    return (codes, _odd(fields(b[..., 106:110], 4, 1)), _float(b, 0))


def _iq1_s(b: U8) -> Blocks:
    words = np.ascontiguousarray(b[..., 34:]).view("<u2")  # [..., 8]
    high = _flat(words[..., None] >> _THREES & 7, b)
    codes = _IQ1[b[..., 2:34] | high << 8].reshape(*words.shape, 32)
    codes = codes | (words >> 13 & 4).astype(np.uint8)[..., None]  # bit 15: shifted down
    return (_flat(codes, b), _odd(words >> 12 & 7), _float(b, 0, 0.125))


def _iq1_m(b: U8) -> Blocks:
    words = np.ascontiguousarray(b[..., 48:]).view("<u2")  # [..., 4]
    nibbles = (words >> 12) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(nibbles, axis=-1, keepdims=True).astype("<u2").view(np.uint8)
    high = fields(b[..., 32:48], 4, 1)  # [..., 32]
    codes = _IQ1[b[..., :32] | (high & 7).astype(np.uint16) << 8] | (high >> 1 & np.uint8(4))[..., None]
    return (_flat(codes, b), _odd(_flat(words[..., None] >> _THREES & 7, b)), _float(d, 0, 0.125))


_THREES = np.arange(0, 12, 3, dtype=np.uint16)
_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)


def _codes(grid: NDArray[np.int8], levels: tuple[int, ...]) -> U8:
    """A codebook whose elements are places in `levels`."""
    return np.searchsorted(levels, grid).astype(np.uint8)


_IQ1 = _codes(grids.IQ1_GRID, (-1, 0, 1))
_IQ2_XXS, _IQ2_XS, _IQ2_S = (
    _codes(grid, IQ2_LEVELS) for grid in (grids.IQ2_XXS_GRID, grids.IQ2_XS_GRID, grids.IQ2_S_GRID)
)
_IQ3_XXS, _IQ3_S = _codes(grids.IQ3_XXS_GRID, IQ3_XXS_LEVELS), _codes(grids.IQ3_S_GRID, IQ3_S_LEVELS)
_NEGATIVE, _EVEN = (grids.SIGNS < 0).astype(np.uint8), (grids.EVEN_SIGNS < 0).astype(np.uint8)


def _signs(words: NDArray[np.uint32], bit: int) -> U8:
    """`bit` where one of 32 values is negative, from four 7-bit fields of a word: [..., 1] → [..., 4, 8]."""
    signs: U8 = _EVEN[words >> _SEVENS & 127] * np.uint8(bit)
    return signs


def _odd(scale: NDArray[Any]) -> U8:
    return (2 * scale + 1).astype(np.uint8)


def _float(b: U8, at: int, factor: float = 1.0) -> U8:
    """The float16 at a byte of each block as the bytes of a float32."""
    return (half(b, at) * np.float32(factor)).view(np.uint8)


def _flat(values: NDArray[Any], b: U8) -> NDArray[Any]:
    return values.reshape(*b.shape[:-1], -1)


def _tq1_0(b: U8) -> Blocks:
    codes = np.concatenate([_trits(b[..., :32], 5), _trits(b[..., 32:48], 5), _trits(b[..., 48:52], 4)], axis=-1)
    return codes, np.tile(b[..., 52:], 8), b[..., :0]


def _trits(data: U8, count: int) -> U8:
    """The first `count` trits of bytes, plane by plane (see `quant.ternary`)."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    fraction = (data[..., None, :] * powers).astype(np.uint16)
    return (fraction * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(*data.shape[:-1], -1)


CODEBOOKS: dict[str, Callable[[U8], Blocks]] = {
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "TQ1_0": _tq1_0,
}

TABLES: dict[str, U8] = {
    "IQ1_S": _IQ1,
    "IQ1_M": _IQ1,
    "IQ2_XXS": _IQ2_XXS,
    "IQ2_XS": _IQ2_XS,
    "IQ2_S": _IQ2_S,
    "IQ3_XXS": _IQ3_XXS,
    "IQ3_S": _IQ3_S,
}
"""The codebooks, their elements as codes: uint8 [entries, 8 or 4]."""
