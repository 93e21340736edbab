"""IQ1_S and IQ1_M: entries of -1, 0 and 1, shifted up or down by an eighth, and a scale per sub-block.

The layouts are drawn in `quant/iquants.py`. With three levels the best scale can be found exactly: of a sub-block's
sorted numbers the first i1 get the lowest level, those up to i2 the middle one, and all pairs (i1, i2) are tried.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.encode.codebook import LANES, MOST, first_least
from llamina.backends.cpu.kernels.encode.lanes import (
    choose,
    choose_i32,
    greater,
    less,
    load_bytes,
    nearest_one,
    sqrt_f32,
    sum_squares,
)
from llamina.backends.cpu.kernels.encode.rows import codebook_encoders
from llamina.backends.cpu.kernels.vector.memory import (
    f32,
    i32,
    i64,
    set_f16,
    set_f32,
    set_i8,
    set_i16,
    stack_of,
    u8,
    u16,
)
from llamina.backends.cpu.kernels.vector.simd import (
    constant,
    cvt_f32,
    f32x8,
    fill_of,
    i32x8,
    load_f32,
    op,
    splat_f32,
    splat_i32,
    store_f32,
    store_i32x8,
    zero_f32,
)

ENTRIES = 2048
GRID = 4 * 3**8
LISTS = GRID + 8 * ENTRIES
HALF, NONE = fill_of(f32x8, 0.5), fill_of(i32x8, -1)
LOWEST = op(f32x8, (), lambda b: constant(f32x8, [-3.4028234663852886e38] * 8))

# Places in the scratch memory of a block. Row by row: weights, the order of each sub-block's numbers (bytes), levels.
WEIGHTS, ORDER, LEVELS = 0, 1024, 1280
# Registers: sums of weighted numbers and of weights up to each place, of the first and the second halves.
SUMS, SUMS_2, TOTALS, TOTALS_2 = 1536, 2592, 3648, 4704
# A register each: scales, and (i1, i2, shift) in one number. Of the whole block: scales, shifts; entries (uint16).
FOUND, CHOICE, SCALES, SHIFTS, CHOSEN = 5760, 5792, 5824, 5888, 5904
scratch = stack_of(5968)


def nearest_shifted(near, x, w, scale, shift):
    """The entry of a list with the smallest weighted error of scale * (entry + shift)."""
    best, place = MOST(), NONE()
    factor, offset = splat_f32(scale), splat_f32(shift - np.float32(1.5))
    for register in range(i64(near)):
        levels, error = near + 8 + 80 * register, zero_f32()
        for i in range(8):
            q = cvt_f32(load_bytes(levels + 8 * i)) * HALF() + offset
            difference = factor * q - splat_f32(f32(x + 4 * i))
            error = error + splat_f32(f32(w + 4 * i)) * difference * difference
        better = less(error, best)
        best = choose(better, error, best)
        place = choose_i32(better, splat_i32(np.int32(8 * register)) + LANES(), place)
    found = first_least(best, place)
    return u16(near + 8 + 80 * (found >> 3) + 64 + 2 * (found & 7))


nearest_shifted = routine(nearest_shifted)


@device
def weigh(s, x, w, mean, weighted):
    for i in range(0, 256, 8):
        v = load_f32(x + 4 * i)
        if weighted:
            store_f32(s + WEIGHTS + 4 * i, load_f32(w + 4 * i) * sqrt_f32(splat_f32(mean) + v * v))
        else:
            store_f32(s + WEIGHTS + 4 * i, v * v)


def sort(x, order, n):
    """The places of n numbers in ascending order; equal ones stay in theirs."""
    for i in range(n):
        value, at = f32(x + 4 * i), i
        while at > 0 and f32(x + 4 * u8(order + at - 1)) > value:
            set_i8(order + at, u8(order + at - 1))
            at -= 1
        set_i8(order + at, i)


sort = routine(sort)


@device
def sum_up(s, x, first, n, split):
    """Sort eight sub-blocks from `first` on, and add up their numbers in that order, in lanes.

    With `split` the halves of a sub-block have sums of their own.
    """
    for j in range(8):
        row, order = 4 * n * (first + j), s + ORDER + n * (first + j)
        sort(x + row, order, n)
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for i in range(n + 1):
            set_f32(s + SUMS + 32 * i + 4 * j, a)
            set_f32(s + TOTALS + 32 * i + 4 * j, b)
            set_f32(s + SUMS_2 + 32 * i + 4 * j, c)
            set_f32(s + TOTALS_2 + 32 * i + 4 * j, d)
            if i < n:
                at = u8(order + i)
                weight = f32(s + WEIGHTS + row + 4 * at)
                if split and at >= n // 2:
                    c += weight * f32(x + row + 4 * at)
                    d += weight
                else:
                    a += weight * f32(x + row + 4 * at)
                    b += weight


@device
def better_of(sum_qx, sum_q2, scale, best, choice, number):
    better = greater(sum_q2, zero_f32()) & greater(sum_qx * sum_qx, best * sum_q2)
    scale = choose(better, sum_qx / sum_q2, scale)
    best = choose(better, scale * sum_qx, best)
    return scale, best, choose_i32(better, splat_i32(np.int32(number)), choice)


def three_levels(shift: float) -> Any:
    """Weighted sums of x * q and q * q for levels -1, 0, 1, shifted, of numbers cut at i1 and i2."""
    A, B, C = (fill_of(f32x8, q + shift) for q in (-1, 0, 1))

    @device
    def sums(s, i1, i2):
        x1, w1 = load_f32(s + SUMS + 32 * i1), load_f32(s + TOTALS + 32 * i1)
        x2, w2 = load_f32(s + SUMS + 32 * i2), load_f32(s + TOTALS + 32 * i2)
        x3, w3 = load_f32(s + SUMS + 1024), load_f32(s + TOTALS + 1024)
        sum_qx = x1 * A() + (x2 - x1) * B() + (x3 - x2) * C()
        return sum_qx, w1 * A() * A() + (w2 - w1) * B() * B() + (w3 - w2) * C() * C()

    return sums


up, down = three_levels(0.125), three_levels(-0.125)


def search_pairs(s):
    """Scales and choices of eight sub-blocks of 32: one shift for all."""
    scale, best, choice = zero_f32(), LOWEST(), NONE()
    for i1 in range(33):
        for i2 in range(i1, 33):
            sum_qx, sum_q2 = up(s, i1, i2)
            scale, best, choice = better_of(sum_qx, sum_q2, scale, best, choice, 64 * i1 + i2)
            sum_qx, sum_q2 = down(s, i1, i2)
            scale, best, choice = better_of(sum_qx, sum_q2, scale, best, choice, 64 * i1 + i2 + 3 * 4096)
    store_f32(s + FOUND, scale)
    store_i32x8(s + CHOICE, choice)


search_pairs = routine(search_pairs)
UP, UP_1, UP_2 = (fill_of(f32x8, x) for x in (1.125, 0.75, -1.25))  # highest level; differences of squares of levels
DOWN, DOWN_1, DOWN_2 = (fill_of(f32x8, x) for x in (0.875, 1.25, -0.75))


@device
def half_sums(sums, totals, i1, i2, top, first, second):
    """Sums of x * q and q * q of half a sub-block of 16, whose levels are one apart."""
    cut = load_f32(sums + 32 * i1) + load_f32(sums + 32 * i2)
    total = load_f32(totals + 512)
    squares = total * top * top + load_f32(totals + 32 * i1) * first + load_f32(totals + 32 * i2) * second
    return load_f32(sums + 512) * top - cut, squares


def search_quadruples(s):
    """Scales and choices of eight sub-blocks of 16: a shift for each half, so four cases."""
    scale, best, choice = zero_f32(), LOWEST(), NONE()
    for i1 in range(17):
        for i2 in range(i1, 17):
            a_up, a_up_2 = half_sums(s + SUMS, s + TOTALS, i1, i2, UP(), UP_1(), UP_2())
            a_down, a_down_2 = half_sums(s + SUMS, s + TOTALS, i1, i2, DOWN(), DOWN_1(), DOWN_2())
            b_up, b_up_2 = half_sums(s + SUMS_2, s + TOTALS_2, i1, i2, UP(), UP_1(), UP_2())
            b_down, b_down_2 = half_sums(s + SUMS_2, s + TOTALS_2, i1, i2, DOWN(), DOWN_1(), DOWN_2())
            at = 64 * i1 + i2
            scale, best, choice = better_of(a_up + b_up, a_up_2 + b_up_2, scale, best, choice, at)
            scale, best, choice = better_of(a_up + b_down, a_up_2 + b_down_2, scale, best, choice, at + 4096)
            scale, best, choice = better_of(a_down + b_up, a_down_2 + b_up_2, scale, best, choice, at + 2 * 4096)
            scale, best, choice = better_of(a_down + b_down, a_down_2 + b_down_2, scale, best, choice, at + 3 * 4096)
    store_f32(s + FOUND, scale)
    store_i32x8(s + CHOICE, choice)


search_quadruples = routine(search_quadruples)


@device
def shift_of(case, later):
    """The shift of a sub-block's first groups, or later ones: bits 1 and 0 of the case say `down`."""
    return np.float32(-0.125) if case >> (0 if later else 1) & 1 else np.float32(0.125)


@device
def entry_sums(s, x, tables, j, n, case):
    """Sums of x * q and q * q for the entries of a sub-block."""
    sum_qx, sum_q2 = np.float32(0), np.float32(0)
    for g in range(n // 8):
        at, shift = 4 * (n * j + 8 * g), shift_of(case, 2 * g >= n // 8)
        entry = tables + GRID + 8 * u16(s + CHOSEN + 2 * (n // 8 * j + g))
        for i in range(8):
            q = np.float32(u8(entry + i)) * np.float32(0.5) + (shift - np.float32(1.5))
            weighted = f32(s + WEIGHTS + at + 4 * i) * q
            sum_qx += weighted * f32(x + at + 4 * i)
            sum_q2 += weighted * q
    return sum_qx, sum_q2


def choose_entries(s, x, tables, j, n, scale, choice):
    """The entries of sub-block j for levels cut as chosen. Its scale and case are kept for the block."""
    case, i1, i2 = choice >> 12, choice >> 6 & 63, choice & 63
    order, levels = s + ORDER + n * j, s + LEVELS
    for i in range(n):
        level = 0 if i < i1 else 1 if i < i2 else 2
        set_i8(levels + u8(order + i), 2 - level if scale < np.float32(0) else level)
    if scale < np.float32(0):
        case = 3 - case
    scale, exact = abs(scale), True
    for g in range(n // 8):
        point = 0
        for i in range(8):
            point = 3 * point + u8(levels + 8 * g + 7 - i)
        entry = i32(tables + 4 * point)
        if entry < 0:
            exact, at = False, 4 * (n * j + 8 * g)
            shift = shift_of(case, 2 * g >= n // 8)
            entry = nearest_shifted(tables + LISTS - entry - 1, x + at, s + WEIGHTS + at, scale, shift)
        set_i16(s + CHOSEN + 2 * (n // 8 * j + g), entry)
    if not exact:
        sum_qx, sum_q2 = entry_sums(s, x, tables, j, n, case)
        if sum_qx > np.float32(0) and sum_q2 > np.float32(0):
            scale = sum_qx / sum_q2
    set_f32(s + SCALES + 4 * j, scale)
    set_i8(s + SHIFTS + j, case)


choose_entries = routine(choose_entries)


def block_search(n: int, least: float, weighted: bool, search: Any) -> Any:
    """A block's scales, cases and entries to scratch memory; returns the largest scale."""
    groups, limit = n // 8, np.float32(least)

    @device
    def run(s, x, w, tables):
        total, largest = sum_squares(x, 256), np.float32(0)
        weigh(s, x, w, (total + total) / np.float32(256), weighted)
        for half in range(256 // (8 * n)):
            sum_up(s, x, 8 * half, n, n == 16)
            search(s)
            for j in range(8 * half, 8 * half + 8):
                size = np.float32(0)
                for i in range(n):
                    size = max(size, abs(f32(x + 4 * (n * j + i))))
                choice = i32(s + CHOICE + 4 * (j - 8 * half))
                if size < limit or choice < 0:
                    set_f32(s + SCALES + 4 * j, np.float32(0))
                    set_i8(s + SHIFTS + j, 0)
                    for g in range(groups):
                        set_i16(s + CHOSEN + 2 * (groups * j + g), 0)
                else:
                    choose_entries(s, x, tables, j, n, f32(s + FOUND + 4 * (j - 8 * half)), choice)
                    largest = max(largest, f32(s + SCALES + 4 * j))
        return largest

    return run


@device
def code_of(s, j, inverse):
    return max(0, min(7, nearest_one(np.float32(0.5) * (inverse * f32(s + SCALES + 4 * j) - np.float32(1)))))


def iq1_s(weighted: bool) -> Any:
    search = block_search(32, 1e-12, weighted, search_pairs)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        d = largest / np.float32(15)
        inverse = np.float32(1) / d if largest > np.float32(0) else np.float32(0)
        set_f16(out, d * np.float32(1.125))
        for j in range(8):
            high = 0
            for g in range(4):
                entry = u16(s + CHOSEN + 2 * (4 * j + g))
                set_i8(out + 2 + 4 * j + g, entry)
                high |= entry >> 8 << 3 * g
            if largest > np.float32(0):
                high |= code_of(s, j, inverse) << 12 | (u8(s + SHIFTS + j) & 1) << 15
            set_i16(out + 34 + 2 * j, high)

    return block


def iq1_m(weighted: bool) -> Any:
    search = block_search(16, 1e-7, weighted, search_quadruples)

    @device
    def fitted(s, x, tables, inverse):
        """The unit of the scales' codes that fits all numbers best; 0 if there is none."""
        sum_qx, sum_q2 = np.float32(0), np.float32(0)
        for j in range(16):
            whole = np.float32(2 * code_of(s, j, inverse) + 1)
            for g in range(2):
                at, shift = 4 * (16 * j + 8 * g), shift_of(u8(s + SHIFTS + j), g == 1)
                entry = tables + GRID + 8 * u16(s + CHOSEN + 2 * (2 * j + g))
                for i in range(8):
                    q = (np.float32(u8(entry + i)) * np.float32(0.5) + (shift - np.float32(1.5))) * whole
                    weighted = f32(s + WEIGHTS + at + 4 * i) * q
                    sum_qx += weighted * f32(x + at + 4 * i)
                    sum_q2 += weighted * q
        return sum_qx / sum_q2 if sum_q2 > np.float32(0) else np.float32(0)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        for i in range(56):
            set_i8(out + i, 0)
        if largest > np.float32(0):
            d = largest / np.float32(15)
            inverse = np.float32(1) / d
            for j in range(16):
                a, b, case = u16(s + CHOSEN + 4 * j), u16(s + CHOSEN + 4 * j + 2), u8(s + SHIFTS + j)
                set_i8(out + 2 * j, a)
                set_i8(out + 2 * j + 1, b)
                set_i8(out + 32 + j, a >> 8 | b >> 8 << 4 | case >> 1 << 3 | (case & 1) << 7)
            fit = fitted(s, x, tables, inverse)
            set_f16(s + FOUND, (fit if fit != np.float32(0) else d) * np.float32(1.1125))
            unit = u16(s + FOUND)
            for j in range(4):
                codes = (unit >> 4 * j & 15) << 12
                for i in range(4):
                    codes |= code_of(s, 4 * j + i, inverse) << 3 * i
                set_i16(out + 48 + 2 * j, codes)

    return block


KERNELS = {**codebook_encoders("IQ1_S", iq1_s, plain=False), **codebook_encoders("IQ1_M", iq1_m)}
