"""Activations as 8-bit integers with a scale per block and sums for offsets and mins; as words; as 16-bit floats.

A row of n numbers becomes, side by side:
  q32    int8[n] | float32[n/32] scales | int32[n/16] sums of 16
  q256   int8[n] | float32[n/256] scales | int16[n/16] sums of 16
  i16    int16[n] | float32[n/32] scales
  bf16   bfloat16[n], and zeros up to a multiple of 32
  bf16x2 the same, then the same of what rounding left
  f16x2  float16[n] and zeros, then the same of what rounding left, of numbers that a power of two brings below 2**15;
         its inverse (float32), and it
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.formats.halves import MOST, store_words
from llamina.backends.cpu.kernels.vector.loads import store_bf16, store_two_bf16, store_two_f16
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32, set_i32, set_i64
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    fma,
    hsum_f32,
    htop_f32,
    load_f32,
    load_f32_part,
    narrow_i8,
    round_f32,
    splat_f32,
    store_i8x32,
    to_i32,
    top_f32,
    two_sums_i32,
    zero_f32,
)

TINY = 1e-30  # numbers below it are zeros, as words


@device
def largest(x, n):
    """The largest of n numbers without their signs; NaN if one is, so that it shows in all that comes of the block."""
    top, whole = zero_f32(), n & ~7
    for i in range(0, whole, 8):
        top = top_f32(top, abs_f32(load_f32(x + 4 * i)))
    if whole < n:
        top = top_f32(top, abs_f32(load_f32_part(x + 4 * whole, n - whole)))
    return htop_f32(top)


@device
def factor_of(top):
    """What brings numbers up to `top` to 127; 0 where top is 0, or no number."""
    return splat_f32(np.float32(127) / top if top > np.float32(0) else np.float32(0))


@device
def length_of(x, factor):
    """The norm of 32 numbers times a factor."""
    a, b, c, d = load_f32(x) * factor, load_f32(x + 32) * factor, load_f32(x + 64) * factor, load_f32(x + 96) * factor
    return np.sqrt(hsum_f32(fma(a, a, fma(b, b, fma(c, c, d * d)))))


@device
def rounded(x, factor):
    return to_i32(round_f32(load_f32(x) * factor))


@device
def round_32(x, q, factor):
    """q = round(x × factor), of 32 numbers; returns the sums of both sixteens, in the halves of 64 bits."""
    a, b, c, d = rounded(x, factor), rounded(x + 32, factor), rounded(x + 64, factor), rounded(x + 96, factor)
    store_i8x32(q, narrow_i8(a, b, c, d))
    return two_sums_i32(a + b, c + d)


@kernel(writes=("out",))
def quantize_32(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        scales, sums = q + inner, q + inner + inner // 8
        for b in range(inner // 32):
            top = largest(source + 128 * b, 32)
            set_i64(sums + 8 * b, round_32(source + 128 * b, q + 32 * b, factor_of(top)))
            set_f32(scales + 4 * b, top / np.float32(127))


@kernel(writes=("out",))
def quantize_256(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        scales, sums = q + inner, q + inner + inner // 64
        for b in range(inner // 256):
            top = largest(source + 1024 * b, 256)
            factor = factor_of(top)
            set_f32(scales + 4 * b, top / np.float32(127))
            for j in range(8 * b, 8 * b + 8):
                both = round_32(source + 128 * j, q + 32 * j, factor)
                set_i32(sums + 4 * j, both & 0xFFFF | both >> 32 << 16)


@kernel(writes=("out",))
def quantize_i16(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        for b in range(inner // 32):
            at = source + 128 * b
            length = top = largest(at, 32)  # of zeros, or of what is no number, if there is nothing else
            factor = np.float32(0)
            if np.float32(TINY) < top < np.float32(np.inf):
                length = top * length_of(at, splat_f32(np.float32(1) / top))
                factor = np.float32(MOST) / length
            same = splat_f32(factor)
            store_words(q + 64 * b, load_f32(at), load_f32(at + 32), load_f32(at + 64), load_f32(at + 96), same)
            set_f32(q + 2 * inner + 4 * b, length * np.float32(1 / MOST))


def bf16_kernel(two: bool) -> Any:
    """Numbers as bfloat16; behind a row, with `two`, what rounding left."""

    @device
    def put(target, left, value):
        if two:
            store_two_bf16(target, left, value)
        else:
            store_bf16(target, value)

    @kernel(writes=("out",))
    def quantize(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
        length, end = out_row // 4 if two else out_row // 2, first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
            left, whole = q + 2 * length, inner & ~7
            for i in range(0, whole, 8):
                put(q + 2 * i, left + 2 * i, load_f32(source + 4 * i))
            if whole < inner:
                put(q + 2 * whole, left + 2 * whole, load_f32_part(source + 4 * whole, inner - whole))
            for i in range(inner + 7 & ~7, length, 8):
                put(q + 2 * i, left + 2 * i, zero_f32())

    return quantize


@kernel(writes=("out",))
def quantize_f16x2(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    length, end = (inner + 31) & ~31, first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        left, whole, scale = q + 2 * length, inner & ~7, q + 4 * length
        set_f32(scale, largest(source, inner))
        exponent = i32(scale) >> 23
        power = min(268 - exponent, 253) if 0 < exponent < 255 else 127
        set_i32(scale, (254 - power) << 23)
        set_i32(scale + 4, power << 23)
        factor = splat_f32(f32(scale + 4))
        for i in range(0, whole, 8):
            store_two_f16(q + 2 * i, left + 2 * i, load_f32(source + 4 * i) * factor)
        if whole < inner:
            value = load_f32_part(source + 4 * whole, inner - whole) * factor
            store_two_f16(q + 2 * whole, left + 2 * whole, value)
        for i in range(inner + 7 & ~7, length, 8):
            store_two_f16(q + 2 * i, left + 2 * i, zero_f32())


KERNELS = {
    "quantize.q32": quantize_32,
    "quantize.q256": quantize_256,
    "quantize.bf16": bf16_kernel(False),
    "quantize.bf16x2": bf16_kernel(True),
    "quantize.f16x2": quantize_f16x2,
    "quantize.i16": quantize_i16,
}
