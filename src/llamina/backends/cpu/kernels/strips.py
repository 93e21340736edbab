"""Eight rows of weights times one token, per format; `ahead` is where the next strip begins.

Within a block the products are summed as integers, which is exact in any order; then one fused multiply-add per block,
in the order of blocks. Every way of multiplying (few tokens or many) must keep to this, so that all give the same bits.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.memory import bf16, f16, f32, i32, prefetch, set_f32, stack_of
from llamina.backends.cpu.kernels.products import (
    dot_i8_i8,
    dot_u8_i8,
    high_nibbles,
    load_fifth_bits,
    load_nibbles,
    load_scales_mins,
    low_nibbles,
    madd,
    mul_u8_i8,
)
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    fma,
    gather_f16,
    i16x16,
    load_bf16,
    load_f16,
    load_f32,
    load_i8x16,
    load_i8x32,
    load_i16x16,
    mask,
    row_sums_f32,
    row_sums_i32,
    shift_left,
    shift_right,
    shuffle_of,
    splat_f32,
    splat_i32,
    widen_i8,
    zero_f32,
    zero_i32,
)


@device
def fetch_ahead(address, nbytes):
    """Ask for the bytes that the next strip will read while this one computes: its rows are too short to be guessed."""
    for i in range(0, nbytes, 64):
        prefetch(address + i)


# ---- float weights: lanes run along the row -----------------------------------------------------------------

column = stack_of(32)


def float_strip(load: Any, read: Any, size: int) -> Any:
    @device
    def strip(p0, p1, p2, p3, p4, p5, p6, p7, x, k, ahead):
        a = b = c = d = e = f = g = h = zero_f32()
        whole = k & ~7
        for i in range(0, whole, 8):
            v, at = load_f32(x + 4 * i), i * size
            fetch_ahead(ahead + 8 * at, 64 * size)
            a = fma(load(p0 + at), v, a)
            b = fma(load(p1 + at), v, b)
            c = fma(load(p2 + at), v, c)
            d = fma(load(p3 + at), v, d)
            e = fma(load(p4 + at), v, e)
            f = fma(load(p5 + at), v, f)
            g = fma(load(p6 + at), v, g)
            h = fma(load(p7 + at), v, h)
        total = row_sums_f32(a, b, c, d, e, f, g, h)
        for i in range(whole, k):  # a row that is no multiple of 8 long
            at, cells = i * size, column()
            set_f32(cells, read(p0 + at))
            set_f32(cells + 4, read(p1 + at))
            set_f32(cells + 8, read(p2 + at))
            set_f32(cells + 12, read(p3 + at))
            set_f32(cells + 16, read(p4 + at))
            set_f32(cells + 20, read(p5 + at))
            set_f32(cells + 24, read(p6 + at))
            set_f32(cells + 28, read(p7 + at))
            total = fma(load_f32(cells), splat_f32(f32(x + 4 * i)), total)
        return total

    return strip


# ---- blocks of 32 against q32 activations -------------------------------------------------------------------


@device
def dot_q4_0(p, x):
    return dot_u8_i8(load_nibbles(p + 2), x)


@device
def dot_q4_1(p, x):
    return dot_u8_i8(load_nibbles(p + 4), x)


@device
def dot_q5_0(p, x):
    return dot_u8_i8(load_nibbles(p + 6) | load_fifth_bits(p + 2), x)


@device
def dot_q5_1(p, x):
    return dot_u8_i8(load_nibbles(p + 8) | load_fifth_bits(p + 4), x)


@device
def dot_q8_0(p, x):
    return dot_i8_i8(load_i8x32(p + 2), x)


def strip_32(dot: Any, nbytes: int, offset: int = 0, has_min: bool = False) -> Any:
    """d · (dot - offset · Σx) per block, plus m · Σx where the format has a min (after d)."""

    @device
    def strip(p0, p1, p2, p3, p4, p5, p6, p7, x, k, ahead):
        scales, sums = x + k, x + k + k // 8
        acc = zero_f32()
        for b in range(k // 32):
            v = load_i8x32(x + 32 * b)
            at = b * nbytes
            fetch_ahead(ahead + 8 * at, 8 * nbytes)
            total = row_sums_i32(
                dot(p0 + at, v), dot(p1 + at, v), dot(p2 + at, v), dot(p3 + at, v),
                dot(p4 + at, v), dot(p5 + at, v), dot(p6 + at, v), dot(p7 + at, v),
            )  # fmt: skip
            scale, sum_x = f32(scales + 4 * b), i32(sums + 8 * b) + i32(sums + 8 * b + 4)
            if offset:
                total = total - splat_i32(np.int32(offset * sum_x))
            d = gather_f16(p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at)
            acc = fma(cvt_f32(total), d * splat_f32(scale), acc)
            if has_min:
                at += 2
                m = gather_f16(p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at)
                acc = fma(m, splat_f32(scale * np.float32(sum_x)), acc)
        return acc

    return strip


# ---- blocks of 256 against q256 activations -----------------------------------------------------------------

scale_0, scale_1, scale_2, scale_3, scale_4, scale_5, scale_6, scale_7 = (
    shuffle_of(i16x16, i16x16, [i] * 16) for i in range(8)
)
pair_0, pair_1, pair_2, pair_3, pair_4, pair_5, pair_6, pair_7 = (
    shuffle_of(i16x16, i16x16, [2 * i] * 8 + [2 * i + 1] * 8) for i in range(8)
)
bit_4 = mask(16)
up_1, up_2, up_3, up_4 = (shift_left(n) for n in (1, 2, 3, 4))
down_1, down_2, down_3 = (shift_right(n) for n in (1, 2, 3))
bits_4_5 = mask(0x30)


@device
def rows_q4_k(p, x, sums):
    """d, dmin f16 | 12 bytes of scales and mins | 128 bytes: sub-blocks 2j in the low nibbles, 2j+1 in the high."""
    sm = load_scales_mins(p + 4)
    q = load_i8x32(p + 16)
    total = madd(mul_u8_i8(low_nibbles(q), load_i8x32(x)), scale_0(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q), load_i8x32(x + 32)), scale_1(sm))
    q = load_i8x32(p + 48)
    total = total + madd(mul_u8_i8(low_nibbles(q), load_i8x32(x + 64)), scale_2(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q), load_i8x32(x + 96)), scale_3(sm))
    q = load_i8x32(p + 80)
    total = total + madd(mul_u8_i8(low_nibbles(q), load_i8x32(x + 128)), scale_4(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q), load_i8x32(x + 160)), scale_5(sm))
    q = load_i8x32(p + 112)
    total = total + madd(mul_u8_i8(low_nibbles(q), load_i8x32(x + 192)), scale_6(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q), load_i8x32(x + 224)), scale_7(sm))
    return total, madd(sm, load_i16x16(sums + 32))


@device
def rows_q5_k(p, x, sums):
    """As Q4_K, with the fifth bits between: bit j of 32 bytes belongs to sub-block j."""
    sm, h = load_scales_mins(p + 4), load_i8x32(p + 16)
    q = load_i8x32(p + 48)
    total = madd(mul_u8_i8(low_nibbles(q) | bit_4(up_4(h)), load_i8x32(x)), scale_0(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q) | bit_4(up_3(h)), load_i8x32(x + 32)), scale_1(sm))
    q = load_i8x32(p + 80)
    total = total + madd(mul_u8_i8(low_nibbles(q) | bit_4(up_2(h)), load_i8x32(x + 64)), scale_2(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q) | bit_4(up_1(h)), load_i8x32(x + 96)), scale_3(sm))
    q = load_i8x32(p + 112)
    total = total + madd(mul_u8_i8(low_nibbles(q) | bit_4(h), load_i8x32(x + 128)), scale_4(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q) | bit_4(down_1(h)), load_i8x32(x + 160)), scale_5(sm))
    q = load_i8x32(p + 144)
    total = total + madd(mul_u8_i8(low_nibbles(q) | bit_4(down_2(h)), load_i8x32(x + 192)), scale_6(sm))
    total = total + madd(mul_u8_i8(high_nibbles(q) | bit_4(down_3(h)), load_i8x32(x + 224)), scale_7(sm))
    return total, madd(sm, load_i16x16(sums + 32))


@device
def rows_q6_k(p, x, sums):
    """128 bytes of low 4 bits | 64 bytes of high 2 bits | int8[16] scales | d f16; values are offset by 32."""
    sc = widen_i8(load_i8x16(p + 192))
    a, b, h = load_i8x32(p), load_i8x32(p + 32), load_i8x32(p + 128)
    total = madd(mul_u8_i8(low_nibbles(a) | bits_4_5(up_4(h)), load_i8x32(x)), pair_0(sc))
    total = total + madd(mul_u8_i8(low_nibbles(b) | bits_4_5(up_2(h)), load_i8x32(x + 32)), pair_1(sc))
    total = total + madd(mul_u8_i8(high_nibbles(a) | bits_4_5(h), load_i8x32(x + 64)), pair_2(sc))
    total = total + madd(mul_u8_i8(high_nibbles(b) | bits_4_5(down_2(h)), load_i8x32(x + 96)), pair_3(sc))
    a, b, h = load_i8x32(p + 64), load_i8x32(p + 96), load_i8x32(p + 160)
    total = total + madd(mul_u8_i8(low_nibbles(a) | bits_4_5(up_4(h)), load_i8x32(x + 128)), pair_4(sc))
    total = total + madd(mul_u8_i8(low_nibbles(b) | bits_4_5(up_2(h)), load_i8x32(x + 160)), pair_5(sc))
    total = total + madd(mul_u8_i8(high_nibbles(a) | bits_4_5(h), load_i8x32(x + 192)), pair_6(sc))
    total = total + madd(mul_u8_i8(high_nibbles(b) | bits_4_5(down_2(h)), load_i8x32(x + 224)), pair_7(sc))
    shift = madd(sc, load_i16x16(sums))
    shift = shift + shift
    shift = shift + shift
    shift = shift + shift
    shift = shift + shift
    return total - (shift + shift), zero_i32()


def strip_256(rows: Any, nbytes: int, d_at: int, min_at: int = -1) -> Any:
    """d · Σ scale·dot - dmin · Σ min·Σx per block."""

    @device
    def strip(p0, p1, p2, p3, p4, p5, p6, p7, x, k, ahead):
        scales, sums = x + k, x + k + k // 64
        acc, less = zero_f32(), zero_f32()
        for b in range(k // 256):
            v, s, at = x + 256 * b, sums + 64 * b, b * nbytes
            fetch_ahead(ahead + 8 * at, 8 * nbytes)
            t0, m0 = rows(p0 + at, v, s)
            t1, m1 = rows(p1 + at, v, s)
            t2, m2 = rows(p2 + at, v, s)
            t3, m3 = rows(p3 + at, v, s)
            t4, m4 = rows(p4 + at, v, s)
            t5, m5 = rows(p5 + at, v, s)
            t6, m6 = rows(p6 + at, v, s)
            t7, m7 = rows(p7 + at, v, s)
            scale = splat_f32(f32(scales + 4 * b))
            total = row_sums_i32(t0, t1, t2, t3, t4, t5, t6, t7)
            a = at + d_at
            d = gather_f16(p0 + a, p1 + a, p2 + a, p3 + a, p4 + a, p5 + a, p6 + a, p7 + a)
            acc = fma(cvt_f32(total), d * scale, acc)
            if min_at >= 0:
                mins = row_sums_i32(m0, m1, m2, m3, m4, m5, m6, m7)
                a = at + min_at
                m = gather_f16(p0 + a, p1 + a, p2 + a, p3 + a, p4 + a, p5 + a, p6 + a, p7 + a)
                less = fma(cvt_f32(mins), m * scale, less)
        return acc - less

    return strip


STRIPS = {
    "F32": float_strip(load_f32, f32, 4),
    "F16": float_strip(load_f16, f16, 2),
    "BF16": float_strip(load_bf16, bf16, 2),
    "Q4_0": strip_32(dot_q4_0, 18, offset=8),
    "Q4_1": strip_32(dot_q4_1, 20, has_min=True),
    "Q5_0": strip_32(dot_q5_0, 22, offset=16),
    "Q5_1": strip_32(dot_q5_1, 24, has_min=True),
    "Q8_0": strip_32(dot_q8_0, 34),
    "Q4_K": strip_256(rows_q4_k, 144, d_at=0, min_at=2),
    "Q5_K": strip_256(rows_q5_k, 176, d_at=0, min_at=2),
    "Q6_K": strip_256(rows_q6_k, 210, d_at=208),
}
