"""GEMV: eight rows of weights times one token, per format. Of the rows from `p` on, those up to `last` are there.

Within a block the products are summed as integers, which is exact in any order; then one fused multiply-add per block,
in the order of blocks. Every way of multiplying (few tokens or many) must keep to this, so that all give the same bits.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.features import HAS_BF16, HAS_VNNI, ZEN_4, ZEN_5
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.blocks import BLOCKS_32, Block32, gather_min
from llamina.backends.cpu.kernels.vector.brain import add_pairs, fold, load_pairs, load_pairs_part, zero_sums
from llamina.backends.cpu.kernels.vector.loads import load_bf16, load_f16
from llamina.backends.cpu.kernels.vector.memory import bf16, f16, f32, i32, prefetch, prefetch_l2, set_f32, stack_of
from llamina.backends.cpu.kernels.vector.products import (
    add_dot,
    high_nibbles,
    lookup_of,
    low_nibbles,
    madd,
    mul_i8_i8,
    mul_u8_i8,
    ones_i16,
    sixteen_twice,
    sixteens,
)
from llamina.backends.cpu.kernels.vector.simd import (
    cvt_f32,
    fma,
    half_row_sums_i32,
    load_f32,
    load_i8x32,
    row_sums_f32,
    row_sums_i32,
    splat_f32,
    splat_i32,
    zero_f32,
    zero_i32,
)

NEAR = 1 << 20 if ZEN_5 else 12 << 10  # bytes of eight rows that are prefetched to the first-level cache
AHEAD = 8 << 10  # bytes that are prefetched of rows that are read one after the other
SHORT = 6 << 10 if ZEN_4 else 0  # bytes of float rows that are read fastest one after the other, not prefetched


@device
def prefetch_line(address, near):
    """Prefetch a cache line to the first level if its time is near, otherwise to the second."""
    if near:
        prefetch(address)
    else:
        prefetch_l2(address)


@device
def prefetch_lines(address, nbytes, near):
    """Prefetch what the next eight rows will read: they are too short for the hardware to prefetch them.

    A few cache lines at a time: a core that waits for two dozen of them cannot read anything else.
    """
    for i in range(0, nbytes, 64):
        prefetch_line(address + i, near)


@device
def rows_after(p, w_row, last):
    """The seven rows after the first; past the last one it is repeated, and the result is dropped."""
    return (
        p + min(1, last) * w_row,
        p + min(2, last) * w_row,
        p + min(3, last) * w_row,
        p + min(4, last) * w_row,
        p + min(5, last) * w_row,
        p + min(6, last) * w_row,
        p + min(7, last) * w_row,
    )


# ---- float weights: lanes run along the row -----------------------------------------------------------------

column = stack_of(32)


def rest_of(read: Any, size: int) -> Any:
    """Elements past the last whole eight, one by one."""

    @device
    def add_rest(total, p0, p1, p2, p3, p4, p5, p6, p7, x, k):
        for i in range(k & ~7, k):
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

    return add_rest


def gemv_float(load: Any, read: Any, size: int) -> Any:
    """Eight rows at a time."""
    add_rest = rest_of(read, size)

    @device
    def gemv(p0, w_row, last, x, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead, near = p0 + 8 * w_row, 8 * w_row <= NEAR
        a = b = c = d = e = f = g = h = zero_f32()
        for i in range(0, k & ~7, 8):
            v, at = load_f32(x + 4 * i), i * size
            prefetch_lines(ahead + 8 * at, 64 * size, near)
            a = fma(load(p0 + at), v, a)
            b = fma(load(p1 + at), v, b)
            c = fma(load(p2 + at), v, c)
            d = fma(load(p3 + at), v, d)
            e = fma(load(p4 + at), v, e)
            f = fma(load(p5 + at), v, f)
            g = fma(load(p6 + at), v, g)
            h = fma(load(p7 + at), v, h)
        return add_rest(row_sums_f32(a, b, c, d, e, f, g, h), p0, p1, p2, p3, p4, p5, p6, p7, x, k)

    return gemv


@device
def gemv_pairs(p0, w_row, last, x, k):
    """BF16 weights against bfloat16 activations, by pairs; past the end of the row there are zeros."""
    p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
    ahead, near = p0 + 8 * w_row, 8 * w_row <= NEAR
    a = b = c = d = e = f = g = h = zero_sums()
    whole = k & ~31
    for at in range(0, 2 * whole, 64):
        v = load_pairs(x + at)
        line = ahead + 8 * at  # prefetched one at a time, between the rows
        prefetch_line(line, near)
        a = add_pairs(load_pairs(p0 + at), v, a)
        prefetch_line(line + 64, near)
        b = add_pairs(load_pairs(p1 + at), v, b)
        prefetch_line(line + 128, near)
        c = add_pairs(load_pairs(p2 + at), v, c)
        prefetch_line(line + 192, near)
        d = add_pairs(load_pairs(p3 + at), v, d)
        prefetch_line(line + 256, near)
        e = add_pairs(load_pairs(p4 + at), v, e)
        prefetch_line(line + 320, near)
        f = add_pairs(load_pairs(p5 + at), v, f)
        prefetch_line(line + 384, near)
        g = add_pairs(load_pairs(p6 + at), v, g)
        prefetch_line(line + 448, near)
        h = add_pairs(load_pairs(p7 + at), v, h)
    if whole < k:
        at, n, v = 2 * whole, k - whole, load_pairs(x + 2 * whole)
        a = add_pairs(load_pairs_part(p0 + at, n), v, a)
        b = add_pairs(load_pairs_part(p1 + at, n), v, b)
        c = add_pairs(load_pairs_part(p2 + at, n), v, c)
        d = add_pairs(load_pairs_part(p3 + at, n), v, d)
        e = add_pairs(load_pairs_part(p4 + at, n), v, e)
        f = add_pairs(load_pairs_part(p5 + at, n), v, f)
        g = add_pairs(load_pairs_part(p6 + at, n), v, g)
        h = add_pairs(load_pairs_part(p7 + at, n), v, h)
    return row_sums_f32(fold(a), fold(b), fold(c), fold(d), fold(e), fold(f), fold(g), fold(h))


@device
def prefetch_ahead(p):
    """Prefetch what is read later of rows that are read one after the other; short ones are not prefetched."""
    if not SHORT:
        prefetch(p + AHEAD)


@device
def row_of_f32(p, x, k):
    """Eight sums along one row, of its whole eights."""
    total, lines = zero_f32(), k & ~15
    for at in range(0, 4 * lines, 64):
        prefetch_ahead(p + at)
        total = fma(load_f32(p + at), load_f32(x + at), total)
        total = fma(load_f32(p + at + 32), load_f32(x + at + 32), total)
    return fma(load_f32(p + 4 * lines), load_f32(x + 4 * lines), total) if k & 8 else total


@device
def row_of_pairs(p, x, k):
    """The same of BF16 weights and bfloat16 activations, by pairs, to the end of the row."""
    total, whole = zero_sums(), k & ~31
    for at in range(0, 2 * whole, 64):
        prefetch_ahead(p + at)
        total = add_pairs(load_pairs(p + at), load_pairs(x + at), total)
    if whole < k:
        total = add_pairs(load_pairs_part(p + 2 * whole, k - whole), load_pairs(x + 2 * whole), total)
    return fold(total)


@device
def no_rest(total, p0, p1, p2, p3, p4, p5, p6, p7, x, k):
    return total


def gemv_by_rows(row: Any, add_rest: Any) -> Any:
    """The same sums, one row after the other: memory is read in the order of its addresses."""

    @device
    def gemv(p0, w_row, last, x, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        a, b, c, d = row(p0, x, k), row(p1, x, k), row(p2, x, k), row(p3, x, k)
        e, f, g, h = row(p4, x, k), row(p5, x, k), row(p6, x, k), row(p7, x, k)
        return add_rest(row_sums_f32(a, b, c, d, e, f, g, h), p0, p1, p2, p3, p4, p5, p6, p7, x, k)

    return gemv


# ---- blocks of 32 (64, 128) against q32 activations ---------------------------------------------------------


def unsigned_offset(form: Block32) -> int:
    """By how much levels are made larger, so that an instruction for unsigned elements can multiply them."""
    return 128 if HAS_VNNI and form.signed and form.four_bits else 0


def sums_of_runs(form: Block32) -> Any:
    """Run j of eight rows times 32 bytes of a token → eight integers."""
    values, product = form.values, mul_i8_i8 if form.signed else mul_u8_i8
    at_once = HAS_VNNI and not form.signed

    @device
    def dot(p, j, v):
        if at_once:
            return add_dot(zero_i32(), values(p, j), v)
        return madd(product(values(p, j), v), ones_i16())

    @device
    def sums(p0, p1, p2, p3, p4, p5, p6, p7, j, x):
        v = load_i8x32(x)
        return row_sums_i32(
            dot(p0, j, v), dot(p1, j, v), dot(p2, j, v), dot(p3, j, v),
            dot(p4, j, v), dot(p5, j, v), dot(p6, j, v), dot(p7, j, v),
        )  # fmt: skip

    return sums


def sums_of_nibbles(form: Block32) -> Any:
    """The same for blocks of 16 bytes that hold two elements each: two rows to a register, and half the summing."""
    at, product = form.packed_at, mul_i8_i8 if form.signed else mul_u8_i8
    mapped, fits = bool(form.levels), 4 * 127 * form.most < 2**15
    levels = lookup_of(tuple(level + unsigned_offset(form) for level in form.levels))

    @device
    def two_rows(p, q, low, high):
        """Row p's sums in the lower four lanes, row q's in the upper."""
        both = sixteens(p + at, q + at)
        v, w = low_nibbles(both), high_nibbles(both)
        if mapped:
            v, w = levels(v), levels(w)
        if HAS_VNNI:
            return add_dot(add_dot(zero_i32(), v, low), w, high)
        if fits:
            return madd(product(v, low) + product(w, high), ones_i16())
        return madd(product(v, low), ones_i16()) + madd(product(w, high), ones_i16())

    @device
    def sums(p0, p1, p2, p3, p4, p5, p6, p7, j, x):
        low, high = sixteen_twice(x), sixteen_twice(x + 16)
        return half_row_sums_i32(
            two_rows(p0, p4, low, high), two_rows(p1, p5, low, high),
            two_rows(p2, p6, low, high), two_rows(p3, p7, low, high),
        )  # fmt: skip

    return sums


def gemv_32(form: Block32) -> Any:
    """d · (dot - offset · Σx) per run of 32, plus m · Σx where the format has a min."""
    nbytes, offset, runs, has_min = form.nbytes, form.offset + unsigned_offset(form), form.runs, form.has_min
    gather = form.gather
    sums_of = sums_of_nibbles(form) if form.four_bits else sums_of_runs(form)

    @device
    def gemv(p0, w_row, last, x, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead, near = p0 + 8 * w_row, 8 * w_row <= NEAR
        scales, sums = x + k, x + k + k // 8
        acc = zero_f32()
        for b in range(k // 32):
            j = b % runs
            prefetch_lines(ahead + 8 * nbytes * b // runs, 8 * nbytes // runs, near)
            total = sums_of(p0, p1, p2, p3, p4, p5, p6, p7, j, x + 32 * b)
            scale, sum_x = f32(scales + 4 * b), i32(sums + 8 * b) + i32(sums + 8 * b + 4)
            if offset:
                total = total - splat_i32(np.int32(offset * sum_x))
            acc = fma(cvt_f32(total), gather(p0, p1, p2, p3, p4, p5, p6, p7) * splat_f32(scale), acc)
            if has_min:
                m = gather_min(p0, p1, p2, p3, p4, p5, p6, p7)
                acc = fma(m, splat_f32(scale * np.float32(sum_x)), acc)
            if j == runs - 1:
                p0, p1, p2, p3 = p0 + nbytes, p1 + nbytes, p2 + nbytes, p3 + nbytes
                p4, p5, p6, p7 = p4 + nbytes, p5 + nbytes, p6 + nbytes, p7 + nbytes
        return acc

    return gemv


def by_length(short: Any, long: Any) -> Any:
    """Rows of at most SHORT bytes in one way, longer ones in another."""

    @device
    def gemv(p0, w_row, last, x, k):
        return short(p0, w_row, last, x, k) if w_row <= SHORT else long(p0, w_row, last, x, k)

    return gemv


F32, PAIRS = gemv_by_rows(row_of_f32, rest_of(f32, 4)), gemv_by_rows(row_of_pairs, no_rest)
if not ZEN_5:
    F32 = by_length(F32, gemv_float(load_f32, f32, 4)) if SHORT else gemv_float(load_f32, f32, 4)
    PAIRS = by_length(PAIRS, gemv_pairs) if SHORT else gemv_pairs
GEMV = {
    "F32": F32,
    "F16": gemv_float(load_f16, f16, 2),
    "BF16": PAIRS if HAS_BF16 else gemv_float(load_bf16, bf16, 2),
}
GEMV |= {name: gemv_32(form) for name, form in BLOCKS_32.items()}
