"""Q2_K, Q4_K and Q5_K: super-blocks of 256 whose sub-blocks have a scale and a minimum.

The layouts are drawn in `quant/kquants.py`. Without importances the weights of the search come from the numbers alone,
and the largest scale and minimum set the units of all; with importances these units are searched for as well.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.lanes import (
    bounded,
    nearest,
    spread_of,
    sqrt_f32,
    store_bytes,
    sum_squares,
)
from llamina.backends.cpu.kernels.encode.rows import encoders
from llamina.backends.cpu.kernels.encode.search import positive, ranged, ranged_integer
from llamina.backends.cpu.kernels.vector.memory import f16, f32, set_f16, set_f32, set_i8, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    f32x8,
    fill_of,
    hmax_f32,
    i32x8,
    load_f32,
    max_f32,
    splat_f32,
    store_f32,
    to_i32,
    zero_f32,
    zero_i32,
)

# Places in the scratch memory of a block. Registers of 8 lanes: numbers, weights, importances of 8 sub-blocks.
NUMBERS, WEIGHTS, IMPORTANCES = 0, 1024, 2048
# Floats, one per sub-block: what the searches found, and the sums of weights.
SCALES, MINIMA, SUMS, INVERSES, OFFSETS = (3072 + 64 * i for i in range(5))
# Bytes: the integers, and the codes of scales and minima.
INTEGERS, CODES, MIN_CODES = 3392, 3648, 3664
# Registers with a scale and a minimum each.
PAIRS, PAIR_WEIGHTS, PAIR_CODES = 3680, 4192, 4704
scratch = stack_of(5216)
MINUS_ONE = fill_of(f32x8, -1.0)
BYTE, SIX_BITS, INVERSE_32 = fill_of(i32x8, 255), fill_of(i32x8, 63), fill_of(f32x8, 1 / 32)


def weigh_sizes(n: int) -> Any:
    """Weights of the numbers' own sizes (Q2_K)."""

    @device
    def weigh(x, w):
        for i in range(n):
            store_f32(w + 32 * i, abs_f32(load_f32(x + 32 * i)))

    return weigh


def weigh_average(n: int) -> Any:
    """Weights of the numbers' own sizes and their root mean square (Q4_K, Q5_K)."""

    @device
    def weigh(x, w):
        total = zero_f32()
        for i in range(n):
            v = load_f32(x + 32 * i)
            total = total + v * v
        average = sqrt_f32(total * INVERSE_32())
        for i in range(n):
            store_f32(w + 32 * i, average + abs_f32(load_f32(x + 32 * i)))

    return weigh


def super_block(n: int, top: int, unit: float, weigh: Any, plain: Any, weighted: Any | None, double: bool) -> Any:
    """From 256 numbers to integers of sub-blocks of n, codes of scales and minima, and their units at `out`.

    `unit` is the largest code. With `weighted` the importances at `w` count, else `weigh` computes weights.
    """
    count, whole = 256 // n, np.float32(unit)
    spread, search, by_importance = spread_of(n), weighted or plain, weighted is not None
    units = positive(count, int(unit))
    TOP, LEVELS = fill_of(f32x8, float(top)), fill_of(i32x8, top)

    @device
    def search_half(s, x, w, mean, at):
        """Eight sub-blocks: their scales and minima to the arrays, from lane `at` on."""
        xt, wt = s + NUMBERS, s + WEIGHTS
        spread(x, xt)
        if not by_importance:
            weigh(xt, wt)
        else:
            spread(w, s + IMPORTANCES)
            total = zero_f32()
            for i in range(n):
                v = load_f32(xt + 32 * i)
                weight = load_f32(s + IMPORTANCES + 32 * i) * sqrt_f32(splat_f32(mean) + v * v)
                store_f32(wt + 32 * i, weight)
                total = total + weight
            store_f32(s + SUMS + 4 * at, total)
        scale, lowest, inverse, offset = search(xt, wt)
        store_f32(s + SCALES + 4 * at, scale)
        store_f32(s + MINIMA + 4 * at, lowest * MINUS_ONE())
        store_f32(s + INVERSES + 4 * at, inverse)
        store_f32(s + OFFSETS + 4 * at, offset)

    @device
    def code_by_largest(found, target, unit_at):
        """Codes in units of the largest number / unit; none is larger than 63."""
        largest = zero_f32()
        for j in range(0, count, 8):
            largest = max_f32(load_f32(found + 4 * j), largest)
        most = hmax_f32(largest)
        inverse = splat_f32(whole / most if most > np.float32(0) else np.float32(0))
        for j in range(0, count, 8):
            code = nearest(inverse * load_f32(found + 4 * j)) & BYTE()
            store_bytes(target + j, bounded(code, zero_i32(), SIX_BITS()) if n == 32 else code)
        set_f16(unit_at, most / whole if most > np.float32(0) else np.float32(0))

    @device
    def code_by_search(s, unit_at, min_unit_at):
        """The same by searches: scales are one lane of a register, minima another."""
        for j in range(count):
            store_f32(s + PAIRS + 32 * j, zero_f32())
            store_f32(s + PAIR_WEIGHTS + 32 * j, zero_f32())
            for k, source in ((0, s + SCALES), (1, s + MINIMA)):
                set_f32(s + PAIRS + 32 * j + 4 * k, f32(source + 4 * j))
                set_f32(s + PAIR_WEIGHTS + 32 * j + 4 * k, f32(s + SUMS + 4 * j))
        both = units(s + PAIRS, s + PAIR_WEIGHTS, s + PAIR_CODES)
        for j in range(count):
            set_i8(s + CODES + j, int(f32(s + PAIR_CODES + 32 * j)))
            set_i8(s + MIN_CODES + j, int(f32(s + PAIR_CODES + 32 * j + 4)))
        store_f32(s + PAIRS, both)
        set_f16(unit_at, f32(s + PAIRS))
        set_f16(min_unit_at, f32(s + PAIRS + 4))

    @device
    def round_all(s, x, d, dmin):
        """Integers in the units that were stored; where a scale became 0, those of the search."""
        for j in range(count):
            step, offset = d * np.float32(u8(s + CODES + j)), dmin * np.float32(u8(s + MIN_CODES + j))
            for i in range(0, n, 8):
                v, target = load_f32(x + 4 * (n * j + i)), s + INTEGERS + n * j + i
                if step != np.float32(0):
                    level = nearest((v + splat_f32(offset)) / splat_f32(step))
                    store_bytes(target, bounded(level, zero_i32(), LEVELS()))
                else:
                    inverse, lowest = splat_f32(f32(s + INVERSES + 4 * j)), splat_f32(f32(s + OFFSETS + 4 * j))
                    store_bytes(target, to_i32(ranged_integer(v, inverse, lowest, TOP())))

    @device
    def quantize(s, x, w, unit_at, min_unit_at):
        mean = np.float32(0)
        if by_importance:
            total = sum_squares(x, 256)
            mean = (total + total if double else total) / np.float32(256)
        for half in range(count // 8):
            search_half(s, x + 512 * half, w + 512 * half, mean, 8 * half)
        if not by_importance:
            code_by_largest(s + SCALES, s + CODES, unit_at)
            code_by_largest(s + MINIMA, s + MIN_CODES, min_unit_at)
        else:
            code_by_search(s, unit_at, min_unit_at)
        if n == 16:
            for j in range(16):  # ggml packs both into a byte before it rounds
                packed = (u8(s + CODES + j) | u8(s + MIN_CODES + j) << 4) & 255
                set_i8(s + CODES + j, packed & 15)
                set_i8(s + MIN_CODES + j, packed >> 4)
        round_all(s, x, f16(unit_at), f16(min_unit_at))

    return quantize


@device
def put_six_bits(s, out):
    """8 scales and 8 minima of 6 bits in 12 bytes."""
    for j in range(4):
        near, far = u8(s + CODES + j), u8(s + CODES + j + 4)
        near_min, far_min = u8(s + MIN_CODES + j), u8(s + MIN_CODES + j + 4)
        set_i8(out + j, near | far >> 4 << 6)
        set_i8(out + j + 4, near_min | far_min >> 4 << 6)
        set_i8(out + j + 8, far & 15 | (far_min & 15) << 4)


def q2_k(weighted: bool) -> Any:
    search = ranged(16, 3, -0.9, 0.05, 36) if weighted else None
    quantize = super_block(16, 3, 15.0, weigh_sizes(16), ranged(16, 3, -0.5, 0.1, 15, True), search, False)

    def block(x, w, out):
        s = scratch()
        quantize(s, x, w, out + 80, out + 82)
        for j in range(16):
            set_i8(out + j, u8(s + CODES + j) | u8(s + MIN_CODES + j) << 4)
        for j in range(2):
            for i in range(32):
                q = s + INTEGERS + 128 * j + i
                set_i8(out + 16 + 32 * j + i, u8(q) | u8(q + 32) << 2 | u8(q + 64) << 4 | u8(q + 96) << 6)

    return block


def q4_k(weighted: bool) -> Any:
    search = ranged(32, 15, -0.9, 0.05, 36) if weighted else None
    quantize = super_block(32, 15, 63.0, weigh_average(32), ranged(32, 15, -1.0, 0.1, 20), search, True)

    def block(x, w, out):
        s = scratch()
        quantize(s, x, w, out, out + 2)
        put_six_bits(s, out + 4)
        for j in range(4):
            for i in range(32):
                q = s + INTEGERS + 64 * j + i
                set_i8(out + 16 + 32 * j + i, u8(q) | u8(q + 32) << 4)

    return block


def q5_k(weighted: bool) -> Any:
    search = ranged(32, 31, -0.9, 0.05, 36) if weighted else None
    quantize = super_block(32, 31, 63.0, weigh_average(32), ranged(32, 31, -0.5, 0.1, 15), search, True)

    def block(x, w, out):
        s = scratch()
        quantize(s, x, w, out, out + 2)
        put_six_bits(s, out + 4)
        for i in range(32):
            high = 0
            for j in range(8):
                high |= u8(s + INTEGERS + 32 * j + i) >> 4 << j
            set_i8(out + 16 + i, high)
        for j in range(4):
            for i in range(32):
                q = s + INTEGERS + 64 * j + i
                set_i8(out + 48 + 32 * j + i, u8(q) & 15 | (u8(q + 32) & 15) << 4)

    return block


KERNELS = {
    **encoders("Q2_K", q2_k),
    **encoders("Q4_K", q4_k),
    **encoders("Q5_K", q5_k),
}
