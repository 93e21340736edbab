"""The search of the IQ2 and IQ3 formats: the entries of a codebook, and a scale, for eight sub-blocks at a time.

Each try of a scale rounds the groups of a sub-block to points of the lattice. A point that is no entry is replaced by
the entry near it with the smallest error; eight entries are compared at once. `tables`: see `quant/neighbours.py`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.encode.lanes import (
    bits_of,
    choose,
    choose_i32,
    greater,
    less,
    less_or_equal,
    load_bytes,
    spread_of,
)
from llamina.backends.cpu.kernels.encode.search import positive
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, pointer, set_f32, set_i8, set_i16, u8, u16
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    constant,
    cvt_f32,
    f32x8,
    fill_of,
    i32x8,
    intrinsic_call,
    load_f32,
    max_f32,
    op,
    splat_f32,
    splat_i32,
    store_f32,
    zero_f32,
    zero_i32,
)

ONE, MOST, TOP = fill_of(f32x8, 1.0), fill_of(f32x8, 3.4028234663852886e38), fill_of(f32x8, 3.0)

# Places in scratch memory for eight sub-blocks. Row by row: numbers without signs, roots of weights, levels of a try.
SIZES, ROOTS, LEVELS = 0, 1024, 2048
# Registers, the lanes being sub-blocks: the same numbers, weights, levels; integers of the first guess of IQ2_XXS.
SIZES_8, WEIGHTS_8, LEVELS_8, GUESS_8 = 3072, 4096, 5120, 6144
# uint16 entries of a try and of the best one, 8 to a sub-block; bytes: whether they are the points rounded to.
ENTRIES, BEST_ENTRIES, EXACT, BEST_EXACT = 7168, 7296, 7424, 7488
# A register of floats: inverse scales, and scales, of a try.
INVERSES, SCALES = 7552, 7584
SIZE = 7616


@dataclass(frozen=True, slots=True)
class Codebook:
    """How a format searches: sub-blocks of n, groups of `width` of them to an entry, `levels` to a number.

    Tried are scales of `tries` steps of `step` around that of the largest number. Afterwards the entries are chosen
    again for the best scale: of groups that were not exact, of all if one was not, or always. Numbers below `least`
    are zero.
    """

    n: int
    width: int
    levels: int
    entries: int
    tries: int
    step: float
    again: Literal["inexact", "all", "always"] = "inexact"
    least: float = 1e-15


def point_of(width: int, levels: int) -> Any:
    """The number of the lattice's point that a group of numbers is rounded to, in units of an inverse scale."""
    floats, integers = ir.VectorType(ir.FloatType(), width), ir.VectorType(I32, width)

    def body(b: Any, address: Any, inverse: Any) -> Any:
        def every(kind: ir.VectorType, value: float) -> Any:
            return ir.Constant(kind, [value] * width)

        x = b.load(pointer(b, address, floats))
        x.align = 4
        undef = ir.Constant(floats, ir.Undefined)
        factor = b.shuffle_vector(b.insert_element(undef, inverse, I32(0)), undef, every(integers, 0))
        scaled = b.fmul(every(floats, 0.5), b.fsub(b.fmul(factor, x), every(floats, 1.0)))
        shifted = b.bitcast(b.fadd(scaled, every(floats, 12582912.0)), integers)
        level = b.sub(b.and_(shifted, every(integers, 0x7FFFFF)), every(integers, 0x400000))
        level = b.select(b.icmp_signed("<", level, every(integers, levels - 1)), level, every(integers, levels - 1))
        level = b.select(b.icmp_signed(">", level, every(integers, 0)), level, every(integers, 0))
        places = b.mul(level, ir.Constant(integers, [levels**i for i in range(width)]))
        return b.zext(intrinsic_call(b, f"llvm.vector.reduce.add.v{width}i32", I32, [places]), I64)

    return op(types.intp, (types.intp, types.float32), body)


def put_levels(width: int) -> Any:
    """The bytes of an entry, as floats."""

    def body(b: Any, source: Any, target: Any) -> None:
        raw = b.load(pointer(b, source, ir.VectorType(ir.IntType(8), width)))
        raw.align = 1
        floats = ir.VectorType(ir.FloatType(), width)
        b.store(b.uitofp(raw, floats), pointer(b, target, floats)).align = 4

    return op(types.void, (types.intp, types.intp), body)


def _first_least(b: Any, errors: Any, places: Any) -> Any:
    """The smallest of the places where the error is smallest."""
    undef, least = ir.Constant(f32x8.ir, ir.Undefined), errors
    for step in (4, 2, 1):
        other = b.shuffle_vector(least, undef, ir.Constant(i32x8.ir, [(i + step) % 8 for i in range(8)]))
        least = b.select(b.fcmp_ordered("<", least, other), least, other)
    found = b.select(b.fcmp_ordered("==", errors, least), places, constant(i32x8, [0x7FFFFFFF] * 8))
    return b.zext(intrinsic_call(b, "llvm.vector.reduce.umin.v8i32", I32, [found]), I64)


first_least = op(types.intp, (f32x8, i32x8), _first_least)
LANES = op(i32x8, (), lambda b: constant(i32x8, list(range(8))))


def nearest_entry(width: int) -> Any:
    """The entry of a list with the smallest error of scale * level against the numbers at x, weighted."""

    def search(near, x, w, scale):
        best, place = MOST(), zero_i32()
        factor, step = splat_f32(scale), 8 * width + 16
        for register in range(i64(near)):
            levels, error = near + 8 + step * register, zero_f32()
            for i in range(width):
                difference = factor * cvt_f32(load_bytes(levels + 8 * i)) - splat_f32(f32(x + 4 * i))
                error = error + splat_f32(f32(w + 4 * i)) * difference * difference
            better = less(error, best)
            best = choose(better, error, best)
            place = choose_i32(better, splat_i32(np.int32(8 * register)) + LANES(), place)
        found = first_least(best, place)
        return u16(near + 8 + step * (found >> 3) + 8 * width + 2 * (found & 7))

    return routine(search)


def searcher(book: Codebook) -> Any:
    """`search(s, tables)`: from sizes and weights in scratch memory to SCALES and BEST_ENTRIES of eight sub-blocks.

    A lane of zeros has scale 0 and entries 0.
    """
    n, width, groups = book.n, book.width, book.n // book.width
    point, put, near = point_of(width, book.levels), put_levels(width), nearest_entry(width)
    spread, guess = spread_of(n), positive(32, book.levels + 1)
    grid = 4 * book.levels**width
    lists = grid + book.entries * width
    LEAST = fill_of(f32x8, book.least)
    highest, stride = np.float32(2 * book.levels - 1), np.float32(book.step)
    tries, always, whole = book.tries, book.again == "always", book.again == "all"
    kept = 1 if book.again == "inexact" else 0

    @device
    def choose_entry(tables, x, w, inverse, scale):
        """The entry of a group, twice, and 1 more if it is the point that the numbers were rounded to."""
        entry = i32(tables + 4 * point(x, inverse))
        if entry >= 0:
            return 2 * entry + 1
        return 2 * near(tables + lists - entry - 1, x, w, scale)

    def assign(s, tables, j, inverse, scale, kept):
        """Choose entries for the groups of sub-block j; those that are exact are kept if `kept` is 1, and not if 0."""
        for g in range(groups):
            at = 4 * (n * j + width * g)
            found = 2 * u16(s + BEST_ENTRIES + 16 * j + 2 * g) + 1
            if kept * u8(s + BEST_EXACT + 8 * j + g) == 0:
                found = choose_entry(tables, s + SIZES + at, s + ROOTS + at, inverse, scale)
            put(tables + grid + width * (found >> 1), s + LEVELS + at)
            set_i16(s + ENTRIES + 16 * j + 2 * g, found >> 1)
            set_i8(s + EXACT + 8 * j + g, found & 1)

    assign = routine(assign)

    @device
    def sums(s):
        spread(s + LEVELS, s + LEVELS_8)
        sum_qx, sum_q2 = zero_f32(), zero_f32()
        for i in range(n):
            v, q = load_f32(s + SIZES_8 + 32 * i), load_f32(s + LEVELS_8 + 32 * i)
            w = load_f32(s + WEIGHTS_8 + 32 * i)
            sum_qx, sum_q2 = sum_qx + w * v * q, sum_q2 + w * q * q
        return sum_qx, sum_q2

    @device
    def keep(s, lanes):
        """What was tried is the best so far of these sub-blocks."""
        for j in range(8):
            if lanes >> j & 1:
                for g in range(groups):
                    set_i16(s + BEST_ENTRIES + 16 * j + 2 * g, u16(s + ENTRIES + 16 * j + 2 * g))
                    set_i8(s + BEST_EXACT + 8 * j + g, u8(s + EXACT + 8 * j + g))

    @device
    def assign_again(s, tables, j):
        """Whether a sub-block's entries are chosen again, for the scale that was found."""
        exact = 0
        for g in range(groups):
            exact += u8(s + BEST_EXACT + 8 * j + g)
        if f32(s + SCALES + 4 * j) > np.float32(0) and (always or exact < groups):
            scale = f32(s + SCALES + 4 * j)
            assign(s, tables, j, np.float32(1) / scale, scale, kept)
            return True
        for g in range(groups):
            entry = u16(s + BEST_ENTRIES + 16 * j + 2 * g)
            put(tables + grid + width * entry, s + LEVELS + 4 * (n * j + width * g))
        return False

    def search(s, tables):
        zero = zero_f32()
        spread(s + SIZES, s + SIZES_8)
        largest = load_f32(s + SIZES_8)
        for i in range(1, n):
            largest = max_f32(largest, load_f32(s + SIZES_8 + 32 * i))
        zeros = less(largest, LEAST())
        scale = largest / splat_f32(highest)
        if always:  # IQ2_XXS starts from a search of its own
            scale = guess(s + SIZES_8, s + WEIGHTS_8, s + GUESS_8)
            largest = scale * TOP()
            zeros = zeros | less_or_equal(largest, zero)
        for j in range(8):
            for g in range(groups):
                set_i16(s + BEST_ENTRIES + 16 * j + 2 * g, 0)
                set_i8(s + BEST_EXACT + 8 * j + g, 0 if whole else 1)
        active, best = 255 - bits_of(zeros), zero
        for number in range(-tries, tries + 1):
            inverse = splat_f32(highest + np.float32(number) * stride) / largest
            store_f32(s + INVERSES, inverse)
            store_f32(s + SCALES, ONE() / inverse)
            for j in range(8):
                if active >> j & 1:
                    assign(s, tables, j, f32(s + INVERSES + 4 * j), f32(s + SCALES + 4 * j), 0)
            sum_qx, sum_q2 = sums(s)
            better = greater(sum_q2, zero) & greater(sum_qx * sum_qx, best * sum_q2)
            keep(s, bits_of(better) & active)
            scale = choose(better, sum_qx / sum_q2, scale)
            best = choose(better, scale * sum_qx, best)
        scale = choose(zeros, zero, scale)
        store_f32(s + SCALES, scale)
        again = 0
        for j in range(8):
            if active >> j & 1 and assign_again(s, tables, j):
                again |= 1 << j
        keep(s, again)
        sum_qx, sum_q2 = sums(s)
        store_f32(s + INVERSES, choose(greater(sum_q2, zero), sum_qx / sum_q2, scale))
        for j in range(8):
            if again >> j & 1:
                set_f32(s + SCALES + 4 * j, f32(s + INVERSES + 4 * j))

    return routine(search)
