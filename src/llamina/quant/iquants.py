"""The IQ formats: vectors of 8 or 4 weights from a codebook (IQ1, IQ2, IQ3), or unevenly spaced levels (IQ4).

All have 256 values to a block but IQ4_NL (32). A codebook of IQ2 or IQ3 holds magnitudes, and the signs are
stored apart; that of IQ1 holds -1, 0 and 1, to be shifted by an eighth up or down. The tables are in
`grids`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamina.quant.bits import F32, U8, fields, half, scaled
from llamina.quant.grids import (
    EVEN_SIGNS,
    IQ1_GRID,
    IQ2_S_GRID,
    IQ2_XS_GRID,
    IQ2_XXS_GRID,
    IQ3_S_GRID,
    IQ3_XXS_GRID,
    IQ4_LEVELS,
    SIGNS,
)

_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)  # shifts of four 7-bit sign fields in a word
_THREES = np.arange(0, 12, 3, dtype=np.uint16)  # shifts of four 3-bit fields in a half word
_HALF, _QUARTER, _EIGHTH = np.float32(0.5), np.float32(0.25), np.float32(0.125)


def decode_iq2_xxs(blocks: U8) -> F32:
    """value = d * (scale + 1/2) / 4 * ±grid, 32 values to a scale.

    byte 0..1   d  f16
    byte 2..65  8 times, for 32 values each:
        byte 0..3  [4] grid index, one per 8 values
        byte 4..7  u32: four 7-bit signs (low end first), scale in the top 4 bits
    """
    parts = blocks[..., 2:].reshape(*blocks.shape[:-1], 8, 8)
    words = parts[..., 4:].view("<u4")  # [..., 8, 1]
    scales = half(blocks, 0) * (_HALF + (words[..., 0] >> 28).astype(np.float32)) * _QUARTER
    return scaled(_flat(IQ2_XXS_GRID[parts[..., :4]] * _even_signs(words), blocks), scales)


def decode_iq2_xs(blocks: U8) -> F32:
    """value = d * (scale + 1/2) / 4 * ±grid, 16 values to a scale.

    byte 0..1    d       f16
    byte 2..65   qs      [32] u16 per 8 values: grid index in the lower 9 bits, signs in the upper 7
    byte 66..73  scales  [8] nibbles, low first
    """
    codes = blocks[..., 2:66].view("<u2")  # [..., 32]
    q = IQ2_XS_GRID[codes & 511] * EVEN_SIGNS[codes >> 9]
    return scaled(_flat(q, blocks), _iq2_scales(blocks, 66))


def decode_iq2_s(blocks: U8) -> F32:
    """value = d * (scale + 1/2) / 4 * ±grid, 16 values to a scale.

    byte 0..1    d       f16
    byte 2..33   qs      [32] lower 8 bits of the grid index, one per 8 values
    byte 34..65  signs   [32] one bit per value
    byte 66..73  qh      [8] upper 2 bits of the grid index, low end first
    byte 74..81  scales  [8] nibbles, low first
    """
    index = blocks[..., 2:34] | fields(blocks[..., 66:74], 2, 1).astype(np.uint16) << 8
    return scaled(_flat(IQ2_S_GRID[index] * SIGNS[blocks[..., 34:66]], blocks), _iq2_scales(blocks, 74))


def decode_iq3_xxs(blocks: U8) -> F32:
    """value = d * (scale + 1/2) / 2 * ±grid, 32 values to a scale.

    byte 0..1    d      f16
    byte 2..65   qs     [64] grid index, one per 4 values
    byte 66..97  words  [8] u32: four 7-bit signs of 8 values (low end first), scale in the top 4 bits
    """
    words = blocks[..., 66:].view("<u4")[..., None]  # [..., 8, 1]
    scales = half(blocks, 0) * (_HALF + (words[..., 0] >> 28).astype(np.float32)) * _HALF
    signs = _flat(_even_signs(words), blocks)
    return scaled(_flat(IQ3_XXS_GRID[blocks[..., 2:66]], blocks) * signs, scales)


def decode_iq3_s(blocks: U8) -> F32:
    """value = d * (2 * scale + 1) * ±grid, 32 values to a scale.

    byte 0..1      d       f16
    byte 2..65     qs      [64] lower 8 bits of the grid index, one per 4 values
    byte 66..73    qh      [8] ninth bits, low end first
    byte 74..105   signs   [32] one bit per value
    byte 106..109  scales  [4] nibbles, low first
    """
    index = blocks[..., 2:66] | fields(blocks[..., 66:74], 1, 1).astype(np.uint16) << 8
    scales = half(blocks, 0) * (2 * fields(blocks[..., 106:110], 4, 1) + 1)
    return scaled(_flat(IQ3_S_GRID[index], blocks) * _flat(SIGNS[blocks[..., 74:106]], blocks), scales)


def decode_iq1_s(blocks: U8) -> F32:
    """value = d * (2 * scale + 1) * (grid ± 1/8), 32 values to a scale and to a shift.

    byte 0..1    d   f16
    byte 2..33   qs  [32] lower 8 bits of the grid index, one per 8 values
    byte 34..49  qh  [8] u16: upper 3 bits of four indices (low end first), scale in bits 12..14,
                     and in bit 15: shift down
    """
    qh = blocks[..., 34:].view("<u2")  # [..., 8]
    high = _flat(qh[..., None] >> _THREES & 7, blocks)
    grid = IQ1_GRID[blocks[..., 2:34] | high << 8]  # [..., 32, 8]
    shift = np.where(qh >> 15, -_EIGHTH, _EIGHTH)
    values = _flat(grid, blocks).reshape(*qh.shape, 32) + shift[..., None]
    scales = half(blocks, 0) * (2 * (qh >> 12 & 7) + 1)
    values *= scales[..., None]
    return _flat(values, blocks)


def decode_iq1_m(blocks: U8) -> F32:
    """value = d * (2 * scale + 1) * (grid ± 1/8), 16 values to a scale, 8 to a shift.

    byte 0..31   qs      [32] lower 8 bits of the grid index, one per 8 values
    byte 32..47  qh      [16] nibbles, low first: upper 3 bits of the grid index; in the top bit: shift down
    byte 48..55  scales  [4] u16: four 3-bit scales (low end first); the top nibbles together are d as f16,
                         its low nibble first
    """
    words = blocks[..., 48:].view("<u2")  # [..., 4]
    nibbles = (words >> 12) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(nibbles, axis=-1, keepdims=True).astype("<u2").view("<f2").astype(np.float32)
    scales = d * (2 * _flat(words[..., None] >> _THREES & 7, blocks) + 1)  # [..., 16]
    high = fields(blocks[..., 32:48], 4, 1)  # [..., 32]
    grid = IQ1_GRID[blocks[..., :32] | (high & 7).astype(np.uint16) << 8]  # [..., 32, 8]
    values = grid + np.where(high >> 3, -_EIGHTH, _EIGHTH)[..., None]
    values *= np.repeat(scales, 2, axis=-1)[..., None]
    return _flat(values, blocks)


def decode_iq4_nl(blocks: U8) -> F32:
    """value = d * level[q].

    byte 0..1   d   f16
    byte 2..17  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    return scaled(IQ4_LEVELS[fields(blocks[..., 2:], 4, 16)], half(blocks, 0))


def decode_iq4_xs(blocks: U8) -> F32:
    """value = d * (scale - 32) * level[q], 32 values to a scale.

    byte 0..1    d         f16
    byte 2..3    scales_h  [2] upper 2 bits of 8 scales, low end first
    byte 4..7    scales_l  [4] lower 4 bits: nibbles, low first
    byte 8..135  qs        [128] nibble planes over 16 bytes, eight times
    """
    scales = fields(blocks[..., 4:8], 4, 1) | fields(blocks[..., 2:4], 2, 1) << np.uint8(4)
    d = half(blocks, 0) * (scales.view(np.int8) - np.int8(32))
    return scaled(IQ4_LEVELS[fields(blocks[..., 8:], 4, 16)], d)


def _iq2_scales(blocks: U8, at: int) -> F32:
    return half(blocks, 0) * (_HALF + fields(blocks[..., at : at + 8], 4, 1)) * _QUARTER


def _even_signs(words: NDArray[np.uint32]) -> NDArray[np.int8]:
    """Return the signs of 32 values from four 7-bit fields of a word: [..., 1] → int8 [..., 4, 8]."""
    signs: NDArray[np.int8] = EVEN_SIGNS[words >> _SEVENS & 127]
    return signs


def _flat(values: NDArray[Any], blocks: U8) -> NDArray[Any]:
    """Keep the leading axes of the blocks, and join the rest."""
    return values.reshape(*blocks.shape[:-1], -1)


DECODERS = {
    "IQ1_S": decode_iq1_s,
    "IQ1_M": decode_iq1_m,
    "IQ2_XXS": decode_iq2_xxs,
    "IQ2_XS": decode_iq2_xs,
    "IQ2_S": decode_iq2_s,
    "IQ3_XXS": decode_iq3_xxs,
    "IQ3_S": decode_iq3_s,
    "IQ4_NL": decode_iq4_nl,
    "IQ4_XS": decode_iq4_xs,
}
