"""Dequantization of the formats whose values come from a table: codebooks, unevenly spaced levels, 4-bit floats.

The tables are constants of the compiled code. What a function reads and writes is told in `dequantize`.
"""

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.memory import f16, set_f32, set_i8, set_i16, u8, u16, u32
from llamina.quant.grids import (
    EVEN_SIGNS,
    FP4_DOUBLED,
    IQ1_GRID,
    IQ2_S_GRID,
    IQ2_XS_GRID,
    IQ2_XXS_GRID,
    IQ3_S_GRID,
    IQ3_XXS_GRID,
    IQ4_LEVELS,
    SIGNS,
)
from llamina.quant.microscale import HALF_E8M0, HALF_UE4M3

NONE = np.float32(0)
"""The minimum of formats that have none."""


@device
def put(s, m, first, runs, scale, low):
    """Scale and minimum of consecutive runs."""
    for r in range(first, first + runs):
        set_f32(s + 4 * r, scale)
        set_f32(m + 4 * r, low)


@device
def times(d, whole):
    """d * whole, the product of a float32 and an integer as float32."""
    return d * np.float32(whole)


@device
def levels(p, q, half, table):
    """`half` bytes: the low halves index a table for the first values, the high halves for the others."""
    for i in range(half):
        set_i8(q + i, table[u8(p + i) & 15])
    for i in range(half):
        set_i8(q + half + i, table[u8(p + i) >> 4])


# ---- IQ: 256 values, codebooks -----------------------------------------------------------------------------


@device
def shifted8(q, index, down):
    """8 values of IQ1: eight times the grid, and 1 up or down."""
    for i in range(8):
        set_i8(q + i, 8 * IQ1_GRID[index, i] + 1 - 2 * down)


@device
def signed8(q, grid, index, signs, code):
    """8 values of IQ2."""
    for i in range(8):
        set_i8(q + i, grid[index, i] * signs[code, i])


@device
def signed4x2(q, grid, first, second, signs, code):
    """8 values of IQ3."""
    for i in range(4):
        set_i8(q + i, grid[first, i] * signs[code, i])
        set_i8(q + 4 + i, grid[second, i] * signs[code, 4 + i])


@device
def dequantize_iq1_s(p, q, s, m):
    """d, 32 low bytes of indices, and 8 u16: four times 3 index bits, 3 bits of scale, shift down."""
    d = f16(p)
    for part in range(8):
        high = u16(p + 34 + 2 * part)
        put(s, m, 2 * part, 2, times(d, 2 * (high >> 12 & 7) + 1) * np.float32(0.125), NONE)
        for k in range(4):
            index = u8(p + 2 + 4 * part + k) | (high >> 3 * k & 7) << 8
            shifted8(q + 32 * part + 8 * k, index, high >> 15)


@device
def dequantize_iq1_m(p, q, s, m):
    """32 low bytes of indices, 32 nibbles (3 index bits, shift down), 4 u16: four scales, a nibble of d."""
    bits = 0
    for k in range(4):
        bits |= u16(p + 48 + 2 * k) >> 12 << 4 * k
    set_i16(s, bits)  # the way from an integer's bits to a half leads through memory
    d = f16(s)
    for r in range(16):
        scale = u16(p + 48 + r // 4 * 2) >> 3 * (r % 4) & 7
        put(s, m, r, 1, times(d, 2 * scale + 1) * np.float32(0.125), NONE)
    for k in range(32):
        high = u8(p + 32 + k // 2) >> 4 * (k % 2)
        shifted8(q + 8 * k, u8(p + k) | (high & 7) << 8, high >> 3 & 1)


@device
def eighths(p, scales, s, m):
    """The 16 scales of IQ2_XS and IQ2_S, nibbles, low first: d * (2 * scale + 1) / 8."""
    d = f16(p)
    for r in range(16):
        scale = u8(scales + r // 2) >> 4 * (r % 2) & 15
        put(s, m, r, 1, times(d, 2 * scale + 1) * np.float32(0.125), NONE)


@device
def dequantize_iq2_xxs(p, q, s, m):
    """d, then 8 times: four indices and a u32 of four 7-bit signs and a 4-bit scale."""
    d = f16(p)
    for part in range(8):
        at = p + 2 + 8 * part
        word = u32(at + 4)
        put(s, m, 2 * part, 2, times(d, 2 * (word >> 28) + 1) * np.float32(0.125), NONE)
        for k in range(4):
            signed8(q + 32 * part + 8 * k, IQ2_XXS_GRID, u8(at + k), EVEN_SIGNS, word >> 7 * k & 127)


@device
def dequantize_iq2_xs(p, q, s, m):
    """d, 32 u16 of index (9 bits) and signs (7), 16 nibbles of scale."""
    eighths(p, p + 66, s, m)
    for k in range(32):
        code = u16(p + 2 + 2 * k)
        signed8(q + 8 * k, IQ2_XS_GRID, code & 511, EVEN_SIGNS, code >> 9)


@device
def dequantize_iq2_s(p, q, s, m):
    """d, 32 low bytes of indices, 32 bytes of signs, 32 upper 2-bit fields, 16 nibbles of scale."""
    eighths(p, p + 74, s, m)
    for k in range(32):
        index = u8(p + 2 + k) | (u8(p + 66 + k // 4) >> 2 * (k % 4) & 3) << 8
        signed8(q + 8 * k, IQ2_S_GRID, index, SIGNS, u8(p + 34 + k))


@device
def dequantize_iq3_xxs(p, q, s, m):
    """d, 64 indices of 4 values, and 8 u32 of four 7-bit signs and a 4-bit scale."""
    d = f16(p)
    for part in range(8):
        word = u32(p + 66 + 4 * part)
        put(s, m, 2 * part, 2, times(d, 2 * (word >> 28) + 1) * np.float32(0.25), NONE)
        for k in range(4):
            at, code = p + 2 + 8 * part + 2 * k, word >> 7 * k & 127
            signed4x2(q + 32 * part + 8 * k, IQ3_XXS_GRID, u8(at), u8(at + 1), EVEN_SIGNS, code)


@device
def dequantize_iq3_s(p, q, s, m):
    """d, 64 low bytes of indices of 4 values, 64 ninth bits, 32 bytes of signs, 8 nibbles of scale."""
    d = f16(p)
    for part in range(8):
        scale = u8(p + 106 + part // 2) >> 4 * (part % 2) & 15
        put(s, m, 2 * part, 2, times(d, 2 * scale + 1), NONE)
    for k in range(32):
        high = u8(p + 66 + k // 4) >> 2 * (k % 4)
        first, second = u8(p + 2 + 2 * k) | (high & 1) << 8, u8(p + 3 + 2 * k) | (high & 2) << 7
        signed4x2(q + 8 * k, IQ3_S_GRID, first, second, SIGNS, u8(p + 74 + k))


@device
def dequantize_iq4_nl(p, q, s, m):
    """32 values: d, nibbles that index the levels."""
    levels(p + 2, q, 16, IQ4_LEVELS)
    put(s, m, 0, 2, f16(p), NONE)


@device
def dequantize_iq4_xs(p, q, s, m):
    """d, 8 scales less 32 (upper 2 bits in 2 bytes, then nibbles), 8 times 16 bytes as in IQ4_NL."""
    d = f16(p)
    for part in range(8):
        low, high = u8(p + 4 + part // 2) >> 4 * (part % 2), u16(p + 2) >> 2 * part
        put(s, m, 2 * part, 2, times(d, (low & 15 | (high & 3) << 4) - 32), NONE)
        levels(p + 8 + 16 * part, q + 32 * part, 16, IQ4_LEVELS)


# ---- 4-bit floats ------------------------------------------------------------------------------------------


@device
def dequantize_mxfp4(p, q, s, m):
    """32 values: an E8M0 byte, nibbles that index the doubled floats."""
    levels(p + 1, q, 16, FP4_DOUBLED)
    put(s, m, 0, 2, HALF_E8M0[u8(p)], NONE)


@device
def dequantize_nvfp4(p, q, s, m):
    """64 values: 4 E4M3 bytes, 4 times 8 bytes of nibbles, low halves first."""
    for r in range(4):
        levels(p + 4 + 8 * r, q + 16 * r, 8, FP4_DOUBLED)
        put(s, m, r, 1, HALF_UE4M3[u8(p + r)], NONE)
