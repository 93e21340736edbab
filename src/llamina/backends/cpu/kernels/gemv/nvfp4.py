"""Eight rows of NVFP4 times one token or four: blocks of 64 whose every 16 elements have a scale of their own.

The scales are 8-bit floats, so they cannot be multiplied in as integers are in blocks of 256. A run of 32 elements is
summed as two integers instead, and each has a fused multiply-add of its own. The arithmetic is otherwise blocks.py's.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.blocks import levels_fp4
from llamina.backends.cpu.kernels.gemv.blocks import prefetch_lines, rows_after
from llamina.backends.cpu.kernels.vector.memory import f32, i32
from llamina.backends.cpu.kernels.vector.products import load_nibbles, madd, mul_u8_i8, ones_i16
from llamina.backends.cpu.kernels.vector.simd import (
    constant,
    cvt_f32,
    f32x8,
    far_sums_i32,
    fma,
    gather_words,
    i8x32,
    i32x8,
    load_i8x32,
    near_sums_i32,
    op,
    shuffle_of,
    splat_f32,
    splat_i32,
    zero_f32,
)

NBYTES, OFFSET = 36, 12  # of a block; levels_fp4 are that much more than they mean
in_order = shuffle_of(i8x32, i8x32, [*range(8), *range(16, 24), *range(8, 16), *range(24, 32)])


@device
def values(p, j):
    """Run j's 32 elements: the low nibbles of 8 bytes, the high ones, those of the next 8 bytes."""
    return levels_fp4(in_order(load_nibbles(p + 4 + 16 * j)))


def _half_ue4m3(byte: int) -> Any:
    """One of the 8-bit floats, halved. Its bits are float32's but for the exponent's bias; 0x7f counts as 0."""

    def body(b: Any, words: Any) -> Any:
        value = b.and_(b.lshr(words, constant(i32x8, [8 * byte] * 8)), constant(i32x8, [255] * 8))
        bits = b.shl(b.and_(value, constant(i32x8, [127] * 8)), constant(i32x8, [20] * 8))
        number = b.fmul(b.bitcast(bits, f32x8.ir), constant(f32x8, [2.0**119] * 8))
        none = b.icmp_unsigned("==", value, constant(i32x8, [127] * 8))
        return b.select(none, constant(f32x8, [0.0] * 8), number)

    return op(f32x8, (i32x8,), body)


scale_0, scale_1, scale_2, scale_3 = (_half_ue4m3(byte) for byte in range(4))


@device
def dot(v, x):
    return madd(mul_u8_i8(v, x), ones_i16())


@device
def add_run(v0, v1, v2, v3, v4, v5, v6, v7, d, e, x, k, b, acc):
    """Run b of eight rows, whose halves have the scales d and e, times a token, onto its sums."""
    v, scale, sums = load_i8x32(x + 32 * b), splat_f32(f32(x + k + 4 * b)), x + k + k // 8 + 8 * b
    a0, a1, a2, a3, a4, a5, a6, a7 = (
        dot(v0, v), dot(v1, v), dot(v2, v), dot(v3, v), dot(v4, v), dot(v5, v), dot(v6, v), dot(v7, v),
    )  # fmt: skip
    near = near_sums_i32(a0, a1, a2, a3, a4, a5, a6, a7) - splat_i32(np.int32(OFFSET * i32(sums)))
    far = far_sums_i32(a0, a1, a2, a3, a4, a5, a6, a7) - splat_i32(np.int32(OFFSET * i32(sums + 4)))
    return fma(cvt_f32(far), e * scale, fma(cvt_f32(near), d * scale, acc))


@device
def add_runs(p0, p1, p2, p3, p4, p5, p6, p7, j, d, e, x0, x1, x2, x3, k, b, f0, f1, f2, f3, several):
    """Run j of a block, which is the row's run b, times four tokens or the first of them: unpacked once."""
    v0, v1, v2, v3 = values(p0, j), values(p1, j), values(p2, j), values(p3, j)
    v4, v5, v6, v7 = values(p4, j), values(p5, j), values(p6, j), values(p7, j)
    f0 = add_run(v0, v1, v2, v3, v4, v5, v6, v7, d, e, x0, k, b, f0)
    if several:
        f1 = add_run(v0, v1, v2, v3, v4, v5, v6, v7, d, e, x1, k, b, f1)
        f2 = add_run(v0, v1, v2, v3, v4, v5, v6, v7, d, e, x2, k, b, f2)
        f3 = add_run(v0, v1, v2, v3, v4, v5, v6, v7, d, e, x3, k, b, f3)
    return f0, f1, f2, f3


@device
def tokens(p0, w_row, last, x0, x1, x2, x3, k, several):
    p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
    ahead = p0 + 8 * w_row
    f0 = f1 = f2 = f3 = zero_f32()
    for b in range(0, k // 32, 2):
        prefetch_lines(ahead + 4 * NBYTES * b, 8 * NBYTES, True)
        s = gather_words(p0, p1, p2, p3, p4, p5, p6, p7)
        f0, f1, f2, f3 = add_runs(
            p0, p1, p2, p3, p4, p5, p6, p7, 0, scale_0(s), scale_1(s), x0, x1, x2, x3, k, b, f0, f1, f2, f3, several
        )
        f0, f1, f2, f3 = add_runs(
            p0, p1, p2, p3, p4, p5, p6, p7, 1, scale_2(s), scale_3(s), x0, x1, x2, x3, k, b + 1, f0, f1, f2, f3, several
        )
        p0, p1, p2, p3 = p0 + NBYTES, p1 + NBYTES, p2 + NBYTES, p3 + NBYTES
        p4, p5, p6, p7 = p4 + NBYTES, p5 + NBYTES, p6 + NBYTES, p7 + NBYTES
    return f0, f1, f2, f3


@device
def gemv(p, w_row, last, x, k):
    return tokens(p, w_row, last, x, x, x, x, k, False)[0]


@device
def four(p, w_row, last, x0, x1, x2, x3, k):
    return tokens(p, w_row, last, x0, x1, x2, x3, k, True)
