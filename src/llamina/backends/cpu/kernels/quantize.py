"""Activations as 8-bit integers with a scale per block, and the sums that offsets and mins need.

A row of n numbers becomes, side by side:
  q32    int8[n] | float32[n/32] scales | int32[n/16] sums of 16
  q256   int8[n] | float32[n/256] scales | int16[n/16] sums of 16
"""

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.memory import i8, i64, set_f32, set_i16, set_i32
from llamina.backends.cpu.kernels.simd import (
    abs_f32,
    hmax_f32,
    load_f32,
    max_f32,
    narrow_i8,
    round_f32,
    splat_f32,
    store_i8x8,
    to_i32,
    zero_f32,
)
from llamina.backends.cpu.kernels.work import first


@device
def largest(x, n):
    top = zero_f32()
    for i in range(0, n, 8):
        top = max_f32(top, abs_f32(load_f32(x + 4 * i)))
    return hmax_f32(top)


@device
def round_to_i8(x, q, n, top):
    """q = round(x × 127 / top), all zero where top is."""
    factor = splat_f32(np.float32(127) / top if top > np.float32(0) else np.float32(0))
    for i in range(0, n, 8):
        store_i8x8(q + i, narrow_i8(to_i32(round_f32(load_f32(x + 4 * i) * factor))))


@device
def sum16(q):
    total = 0
    for i in range(16):
        total += i8(q + i)
    return total


@kernel
def quantize_32(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        scales, sums = q + inner, q + inner + inner // 8
        for b in range(inner // 32):
            top = largest(source + 128 * b, 32)
            round_to_i8(source + 128 * b, q + 32 * b, 32, top)
            set_f32(scales + 4 * b, top / np.float32(127))
            set_i32(sums + 8 * b, sum16(q + 32 * b))
            set_i32(sums + 8 * b + 4, sum16(q + 32 * b + 16))


@kernel
def quantize_256(thread, threads, count, x, x_row, x_head, out, out_row, outer, inner):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source, q = x + item // outer * x_row + item % outer * x_head, out + item * out_row
        scales, sums = q + inner, q + inner + inner // 64
        for b in range(inner // 256):
            top = largest(source + 1024 * b, 256)
            round_to_i8(source + 1024 * b, q + 256 * b, 256, top)
            set_f32(scales + 4 * b, top / np.float32(127))
            for j in range(16):
                set_i16(sums + 32 * b + 2 * j, sum16(q + 256 * b + 16 * j))


KERNELS = {"quantize.q32": quantize_32, "quantize.q256": quantize_256}
