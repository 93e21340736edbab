"""Dequantization: blocks of every format as small integers with float scales, for gathers from embedding tables.

`unpack_*(p, q, s, m)` reads the block at `p` and writes, in the order of its values,

    q  int8[block]          s  float32[block / 16]          m  float32[block / 16]

so that value[i] = s[i // 16] * q[i] - m[i // 16], equal bit for bit to the decoders in `llamina.quant`, which
describe the layouts in full. A run is 16 values: the finest any scale gets.
"""

from typing import Any

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.dequantize_iq import (
    NONE,
    dequantize_iq1_m,
    dequantize_iq1_s,
    dequantize_iq2_s,
    dequantize_iq2_xs,
    dequantize_iq2_xxs,
    dequantize_iq3_s,
    dequantize_iq3_xxs,
    dequantize_iq4_nl,
    dequantize_iq4_xs,
    dequantize_mxfp4,
    dequantize_nvfp4,
    put,
    times,
)
from llamina.backends.cpu.kernels.vector.memory import f16, i8, set_i8, set_i32, u8, u32

ONES = 0x01010101
"""A byte times this is that byte four times."""


# ---- fields of bits ---------------------------------------------------------------------------------------


@device
def plane(p, bits, group, r):
    """The 16 bytes that hold run r and its shift in them: planes of `bits` over `group` bytes (`fields`)."""
    first, planes = 16 * r, 8 // bits
    return p + first // (group * planes) * group + first % group, first // group % planes * bits


@device
def four(at, shift, bits):
    """The same field of four bytes, each in a byte of its own."""
    return u32(at) >> shift & ((1 << bits) - 1) * ONES


@device
def set_four(q, values, zero):
    """Store four bytes below 128 less `zero`; the top bits keep a byte from borrowing from the next."""
    set_i32(q, ((values | 128 * ONES) - zero * ONES) ^ 128 * ONES)


@device
def nibbles(p, q, zero):
    """16 bytes: the low halves are values 0..15, the high halves values 16..31."""
    for i in range(0, 16, 4):
        set_four(q + i, four(p + i, 0, 4), zero)
        set_four(q + 16 + i, four(p + i, 4, 4), zero)


@device
def five_bits(p, q, zero):
    """32 fifth bits, then nibbles."""
    high = u32(p)
    for i in range(16):
        byte = u8(p + 4 + i)
        set_i8(q + i, (byte & 15 | (high >> i & 1) << 4) - zero)
        set_i8(q + 16 + i, (byte >> 4 | (high >> 16 + i & 1) << 4) - zero)


@device
def planes(p, q, bits, group, zero):
    """256 values in planes."""
    for r in range(16):
        at, shift = plane(p, bits, group, r)
        for i in range(0, 16, 4):
            set_four(q + 16 * r + i, four(at + i, shift, bits), zero)


@device
def split_planes(low, low_bits, low_group, high, high_bits, high_group, q, zero):
    """256 values whose upper bits are in planes of their own."""
    for r in range(16):
        at, shift = plane(low, low_bits, low_group, r)
        above, above_shift = plane(high, high_bits, high_group, r)
        for i in range(0, 16, 4):
            upper = four(above + i, above_shift, high_bits) << low_bits
            set_four(q + 16 * r + i, four(at + i, shift, low_bits) | upper, zero)


# ---- 32 values, one scale ---------------------------------------------------------------------------------


@device
def dequantize_q4_0(p, q, s, m):
    """d, nibbles less 8."""
    nibbles(p + 2, q, 8)
    put(s, m, 0, 2, f16(p), NONE)


@device
def dequantize_q4_1(p, q, s, m):
    """d, m (added), nibbles."""
    nibbles(p + 4, q, 0)
    put(s, m, 0, 2, f16(p), -f16(p + 2))


@device
def dequantize_q5_0(p, q, s, m):
    """d, 32 fifth bits, nibbles; less 16."""
    five_bits(p + 2, q, 16)
    put(s, m, 0, 2, f16(p), NONE)


@device
def dequantize_q5_1(p, q, s, m):
    """d, m (added), 32 fifth bits, nibbles."""
    five_bits(p + 4, q, 0)
    put(s, m, 0, 2, f16(p), -f16(p + 2))


@device
def dequantize_q8_0(p, q, s, m):
    """d, int8."""
    for i in range(32):
        set_i8(q + i, i8(p + 2 + i))
    put(s, m, 0, 2, f16(p), NONE)


# ---- K: 256 values, integer scales ------------------------------------------------------------------------


@device
def dequantize_q2_k(p, q, s, m):
    """16 bytes of scale and min, 2-bit planes over 32 bytes, d, dmin."""
    planes(p + 16, q, 2, 32, 0)
    d, dmin = f16(p + 80), f16(p + 82)
    for r in range(16):
        put(s, m, r, 1, times(d, u8(p + r) & 15), times(dmin, u8(p + r) >> 4))


@device
def dequantize_q3_k(p, q, s, m):
    """Third bits over 32 bytes, 2-bit planes over 32, 16 scales of 4 + 2 bits less 32, d; values less 4."""
    split_planes(p + 32, 2, 32, p, 1, 32, q, 4)
    d = f16(p + 108)
    for r in range(16):
        low, high = u8(p + 96 + r % 8) >> r // 8 * 4, u8(p + 104 + r % 4) >> r // 4 * 2
        put(s, m, r, 1, times(d, (low & 15 | (high & 3) << 4) - 32), NONE)


@device
def scales_and_mins(p, s, m):
    """d, dmin, then 8 scales and 8 mins of 6 bits in 12 bytes; the last four lie in two parts."""
    d, dmin = f16(p), f16(p + 2)
    for r in range(4):
        first, second, last = u8(p + 4 + r), u8(p + 8 + r), u8(p + 12 + r)
        put(s, m, 2 * r, 2, times(d, first & 63), times(dmin, second & 63))
        scale, low = last & 15 | first >> 6 << 4, last >> 4 | second >> 6 << 4
        put(s, m, 2 * r + 8, 2, times(d, scale), times(dmin, low))


@device
def dequantize_q4_k(p, q, s, m):
    """`scales_and_mins`, nibble planes over 32 bytes."""
    planes(p + 16, q, 4, 32, 0)
    scales_and_mins(p, s, m)


@device
def dequantize_q5_k(p, q, s, m):
    """`scales_and_mins`, fifth bits over 32 bytes, nibble planes over 32."""
    split_planes(p + 48, 4, 32, p + 16, 1, 32, q, 0)
    scales_and_mins(p, s, m)


@device
def dequantize_q6_k(p, q, s, m):
    """Nibble planes over 64 bytes, upper 2-bit planes over 32, 16 int8 scales, d; values less 32."""
    split_planes(p, 4, 64, p + 128, 2, 32, q, 32)
    d = f16(p + 208)
    for r in range(16):
        put(s, m, r, 1, times(d, i8(p + 192 + r)), NONE)


# ---- one or two bits, one scale ---------------------------------------------------------------------------


@device
def trits(p, q, count, planes):
    """`count` bytes of base-3 fractions: digit 0 of each in turn, then digit 1, ... (`ternary._trits`)."""
    power = 1
    for k in range(planes):
        for i in range(count):
            set_i8(q + count * k + i, ((u8(p + i) * power & 255) * 3 >> 8) - 1)
        power *= 3


@device
def dequantize_tq1_0(p, q, s, m):
    """256 values: trits of 32, 16 and 4 bytes, d; less 1."""
    trits(p, q, 32, 5)
    trits(p + 32, q + 160, 16, 5)
    trits(p + 48, q + 240, 4, 4)
    put(s, m, 0, 16, f16(p + 52), NONE)


@device
def dequantize_tq2_0(p, q, s, m):
    """256 values: 2-bit planes over 32 bytes, d; less 1."""
    planes(p, q, 2, 32, 1)
    put(s, m, 0, 16, f16(p + 64), NONE)


@device
def dequantize_q1_0(p, q, s, m):
    """128 values: d, bits in order for 1 and -1."""
    for i in range(128):
        set_i8(q + i, 2 * (u8(p + 2 + i // 8) >> i % 8 & 1) - 1)
    put(s, m, 0, 8, f16(p), NONE)


@device
def dequantize_q2_0(p, q, s, m):
    """64 values: d, 2-bit fields in order, less 1."""
    for i in range(64):
        set_i8(q + i, (u8(p + 2 + i // 4) >> i % 4 * 2 & 3) - 1)
    put(s, m, 0, 4, f16(p), NONE)


DEQUANTIZE: dict[str, Any] = {
    "Q4_0": dequantize_q4_0,
    "Q4_1": dequantize_q4_1,
    "Q5_0": dequantize_q5_0,
    "Q5_1": dequantize_q5_1,
    "Q8_0": dequantize_q8_0,
    "Q2_K": dequantize_q2_k,
    "Q3_K": dequantize_q3_k,
    "Q4_K": dequantize_q4_k,
    "Q5_K": dequantize_q5_k,
    "Q6_K": dequantize_q6_k,
    "IQ1_S": dequantize_iq1_s,
    "IQ1_M": dequantize_iq1_m,
    "IQ2_XXS": dequantize_iq2_xxs,
    "IQ2_XS": dequantize_iq2_xs,
    "IQ2_S": dequantize_iq2_s,
    "IQ3_XXS": dequantize_iq3_xxs,
    "IQ3_S": dequantize_iq3_s,
    "IQ4_NL": dequantize_iq4_nl,
    "IQ4_XS": dequantize_iq4_xs,
    "TQ1_0": dequantize_tq1_0,
    "TQ2_0": dequantize_tq2_0,
    "Q1_0": dequantize_q1_0,
    "Q2_0": dequantize_q2_0,
    "MXFP4": dequantize_mxfp4,
    "NVFP4": dequantize_nvfp4,
}
