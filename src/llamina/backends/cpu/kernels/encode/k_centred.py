"""Q3_K and Q6_K: super-blocks of 256 in 16 sub-blocks with a scale each, whose integers are around zero.

The layouts are drawn in `quant/kquants.py`.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.lanes import (
    bounded,
    nearest,
    nearest_one,
    spread_16,
    sqrt_f32,
    store_bytes,
    sum_squares,
)
from llamina.backends.cpu.kernels.encode.rows import encoders
from llamina.backends.cpu.kernels.encode.search import centred, descended
from llamina.backends.cpu.kernels.vector.memory import f16, f32, i8, set_f16, set_f32, set_i8, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import fill_of, i32x8, load_f32, splat_f32, store_f32, zero_f32

# Places in the scratch memory of a block. Registers: numbers and weights of 8 sub-blocks, integers of all 16.
NUMBERS, WEIGHTS, FOUND = 0, 512, 1024
# Floats, one per sub-block: scales, inverse scales that integers were rounded with, sums of weights.
SCALES, INVERSES, SUMS = 2048, 2112, 2176
# Bytes: the integers, and the codes of the scales.
INTEGERS, CODES = 2240, 2496
# Registers with a scale, or a sum of weights, in one lane.
ONES, ONE_WEIGHTS = 2512, 3024
scratch = stack_of(3536)
TINY = np.float32(1e-15)


@device
def largest_scale(s):
    """The first of the largest scales by size."""
    size, value = np.float32(0), np.float32(0)
    for j in range(16):
        scale = f32(s + SCALES + 4 * j)
        if abs(scale) > size:
            size, value = abs(scale), scale
    return value


def rounder(top: int) -> Any:
    """Integers 0..2 * top - 1 in units of d * code; `found` says what they are where that is 0."""
    LOW, HIGH, SHIFT = fill_of(i32x8, -top), fill_of(i32x8, top - 1), fill_of(i32x8, top)

    @device
    def round_all(s, x, d, found):
        for j in range(16):
            step = d * np.float32(i8(s + CODES + j))
            for i in range(0, 16, 8):
                if step != np.float32(0):
                    level = nearest(load_f32(x + 64 * j + 4 * i) / splat_f32(step))
                    store_bytes(s + INTEGERS + 16 * j + i, bounded(level, LOW(), HIGH()) + SHIFT())
                else:
                    for k in range(i, i + 8):
                        set_i8(s + INTEGERS + 16 * j + k, found(s, x, j, k))

    return round_all


def searched(top: int) -> Any:
    """The integers that `centred` found: 0 in sub-blocks of zeros."""

    @device
    def found(s, x, j, k):
        inverse = f32(s + INVERSES + 4 * j)
        if inverse == np.float32(0):
            return 0
        return max(-top, min(top - 1, nearest_one(inverse * f32(x + 64 * j + 4 * k)))) + top

    return found


@device
def descended_found(s, x, j, k):
    return int(f32(s + FOUND + 512 * (j // 8) + 32 * k + 4 * (j % 8))) + 4


def q6_k(weighted: bool) -> Any:
    search, round_all, found = centred(16, 32), rounder(32), searched(32)

    def block(x, w, out):
        s = scratch()
        for half in range(2):
            spread_16(x + 512 * half, s + NUMBERS)
            if weighted:
                spread_16(w + 512 * half, s + WEIGHTS)
            else:
                for i in range(16):
                    v = load_f32(s + NUMBERS + 32 * i)
                    store_f32(s + WEIGHTS + 32 * i, v * v)
            scale, inverse = search(s + NUMBERS, s + WEIGHTS)
            store_f32(s + SCALES + 32 * half, scale)
            store_f32(s + INVERSES + 32 * half, inverse)
        largest = largest_scale(s)
        if abs(largest) < TINY:
            for i in range(210):
                set_i8(out + i, 0)
            return
        factor = np.float32(-128) / largest
        set_f16(out + 208, np.float32(1) / factor)
        for j in range(16):
            code = min(127, nearest_one(factor * f32(s + SCALES + 4 * j)))
            set_i8(s + CODES + j, code)
            set_i8(out + 192 + j, code)
        round_all(s, x, f16(out + 208), found)
        for j in range(2):
            for i in range(32):
                q = s + INTEGERS + 128 * j + i
                a, b, c, d = u8(q), u8(q + 32), u8(q + 64), u8(q + 96)
                set_i8(out + 64 * j + i, a & 15 | (c & 15) << 4)
                set_i8(out + 64 * j + 32 + i, b & 15 | (d & 15) << 4)
                set_i8(out + 128 + 32 * j + i, a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6)

    return block


@device
def put_q3_k(s, out):
    """16 codes of 6 bits in 12 bytes, and integers of 3 bits, the third apart."""
    for j in range(4):
        codes = s + CODES + j
        a, b, c, d = i8(codes) + 32, i8(codes + 4) + 32, i8(codes + 8) + 32, i8(codes + 12) + 32
        set_i8(out + 96 + j, a & 15 | (c & 15) << 4)
        set_i8(out + 100 + j, b & 15 | (d & 15) << 4)
        set_i8(out + 104 + j, a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6)
    for i in range(32):
        high = 0
        for j in range(8):
            high |= u8(s + INTEGERS + 32 * j + i) >> 2 << j
        set_i8(out + i, high)
    for j in range(2):
        for i in range(32):
            q = s + INTEGERS + 128 * j + i
            low = u8(q) & 3 | (u8(q + 32) & 3) << 2 | (u8(q + 64) & 3) << 4 | (u8(q + 96) & 3) << 6
            set_i8(out + 32 + 32 * j + i, low)


def q3_k(weighted: bool) -> Any:
    return q3_k_weighted() if weighted else q3_k_plain()


def q3_k_plain() -> Any:
    search, round_all = descended(16, 4), rounder(4)

    def block(x, w, out):
        s = scratch()
        for half in range(2):
            spread_16(x + 512 * half, s + NUMBERS)
            store_f32(s + SCALES + 32 * half, search(s + NUMBERS, s + FOUND + 512 * half))
        largest = largest_scale(s)
        factor = np.float32(-32) / largest if largest != np.float32(0) else np.float32(0)
        set_f16(out + 108, np.float32(1) / factor if largest != np.float32(0) else np.float32(0))
        for j in range(16):
            code = nearest_one(factor * f32(s + SCALES + 4 * j)) if largest != np.float32(0) else -32
            set_i8(s + CODES + j, max(-32, min(31, code)))
        round_all(s, x, f16(out + 108), descended_found)
        put_q3_k(s, out)

    return block


def q3_k_weighted() -> Any:
    search, units, round_all, found = centred(16, 4), centred(16, 32), rounder(4), searched(4)

    def block(x, w, out):
        s = scratch()
        total = sum_squares(x, 256)
        mean = splat_f32((total + total) / np.float32(256))
        for half in range(2):
            spread_16(x + 512 * half, s + NUMBERS)
            spread_16(w + 512 * half, s + WEIGHTS)
            weights = zero_f32()
            for i in range(16):
                v = load_f32(s + NUMBERS + 32 * i)
                weight = load_f32(s + WEIGHTS + 32 * i) * sqrt_f32(mean + v * v)
                store_f32(s + WEIGHTS + 32 * i, weight)
                weights = weights + weight
            store_f32(s + SUMS + 32 * half, weights)
            scale, inverse = search(s + NUMBERS, s + WEIGHTS)
            store_f32(s + SCALES + 32 * half, scale)
            store_f32(s + INVERSES + 32 * half, inverse)
        for j in range(16):
            store_f32(s + ONES + 32 * j, zero_f32())
            store_f32(s + ONE_WEIGHTS + 32 * j, zero_f32())
            set_f32(s + ONES + 32 * j, f32(s + SCALES + 4 * j))
            set_f32(s + ONE_WEIGHTS + 32 * j, f32(s + SUMS + 4 * j))
        unit, factor = units(s + ONES, s + ONE_WEIGHTS)
        store_f32(s + ONES, unit)
        store_f32(s + ONE_WEIGHTS, factor)
        set_f16(out + 108, f32(s + ONES))
        inverse_unit = f32(s + ONE_WEIGHTS)
        for j in range(16):
            code = nearest_one(inverse_unit * f32(s + SCALES + 4 * j)) if inverse_unit != np.float32(0) else -32
            set_i8(s + CODES + j, max(-32, min(31, code)))
        round_all(s, x, f16(out + 108), found)
        put_q3_k(s, out)

    return block


KERNELS = {**encoders("Q3_K", q3_k), **encoders("Q6_K", q6_k)}
