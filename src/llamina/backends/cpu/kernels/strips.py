"""Eight rows of weights times one token, per format. Of the rows from `p` on, those up to `last` are there.

Within a block the products are summed as integers, which is exact in any order; then one fused multiply-add per block,
in the order of blocks. Every way of multiplying (few tokens or many) must keep to this, so that all give the same bits.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats import SMALL, SUPER, Small, Super, halves_at
from llamina.backends.cpu.kernels.memory import bf16, f16, f32, i32, prefetch, set_f32, stack_of
from llamina.backends.cpu.kernels.products import madd, mul_i8_i8, mul_u8_i8, ones_i16, times_of
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    fma,
    i16x16,
    load_bf16,
    load_f16,
    load_f32,
    load_i8x32,
    load_i16x16,
    load_i32x8,
    row_sums_f32,
    row_sums_i32,
    shuffle_of,
    splat_f32,
    splat_i32,
    store_i32x8,
    zero_f32,
    zero_i32,
)


@device
def fetch_ahead(address, nbytes):
    """Ask for the bytes that the next strip will read while this one computes: its rows are too short to be guessed."""
    for i in range(0, nbytes, 64):
        prefetch(address + i)


@device
def rows_after(p, w_row, last):
    """The seven rows after the first; past the last one it is repeated, and what comes of it is not kept."""
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


def float_strip(load: Any, read: Any, size: int) -> Any:
    @device
    def strip(p0, w_row, last, x, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead = p0 + 8 * w_row
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


# ---- blocks of 32 (64, 128) against q32 activations ---------------------------------------------------------


def strip_small(form: Small) -> Any:
    """d · (dot - offset · Σx) per run of 32, plus m · Σx where the format has a min."""
    values, nbytes, offset, runs, min_at = form.values, form.nbytes, form.offset, form.runs, form.min_at
    product, gather, gather_min = mul_i8_i8 if form.signed else mul_u8_i8, form.gather, halves_at(form.min_at)

    @device
    def dot(p, j, v):
        return madd(product(values(p, j), v), ones_i16())

    @device
    def strip(p0, w_row, last, x, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead = p0 + 8 * w_row
        scales, sums = x + k, x + k + k // 8
        acc = zero_f32()
        for b in range(k // 32):
            v, j = load_i8x32(x + 32 * b), b % runs
            fetch_ahead(ahead + 8 * nbytes * b // runs, 8 * nbytes // runs)
            total = row_sums_i32(
                dot(p0, j, v), dot(p1, j, v), dot(p2, j, v), dot(p3, j, v),
                dot(p4, j, v), dot(p5, j, v), dot(p6, j, v), dot(p7, j, v),
            )  # fmt: skip
            scale, sum_x = f32(scales + 4 * b), i32(sums + 8 * b) + i32(sums + 8 * b + 4)
            if offset:
                total = total - splat_i32(np.int32(offset * sum_x))
            acc = fma(cvt_f32(total), gather(p0, p1, p2, p3, p4, p5, p6, p7) * splat_f32(scale), acc)
            if min_at:
                m = gather_min(p0, p1, p2, p3, p4, p5, p6, p7)
                acc = fma(m, splat_f32(scale * np.float32(sum_x)), acc)
            if j == runs - 1:
                p0, p1, p2, p3 = p0 + nbytes, p1 + nbytes, p2 + nbytes, p3 + nbytes
                p4, p5, p6, p7 = p4 + nbytes, p5 + nbytes, p6 + nbytes, p7 + nbytes
        return acc

    return strip


# ---- blocks of 256 against q256 activations -----------------------------------------------------------------

pair_0, pair_1, pair_2, pair_3, pair_4, pair_5, pair_6, pair_7 = (
    shuffle_of(i16x16, i16x16, [2 * i] * 8 + [2 * i + 1] * 8) for i in range(8)
)


eight_sums, eight_mins = stack_of(256), stack_of(256)


@device
def sum_cells(cells):
    """Eight registers in memory → their sums."""
    return row_sums_i32(
        load_i32x8(cells), load_i32x8(cells + 32), load_i32x8(cells + 64), load_i32x8(cells + 96),
        load_i32x8(cells + 128), load_i32x8(cells + 160), load_i32x8(cells + 192), load_i32x8(cells + 224),
    )  # fmt: skip


def strip_super(form: Super) -> Any:
    """d · Σ scale·(dot - offset·Σx) - dmin · Σ min·Σx per block."""
    values, scales_of, mins_of, nbytes = form.values, form.scales, form.mins, form.nbytes
    product, gather, gather_min = mul_i8_i8 if form.signed else mul_u8_i8, form.gather, form.gather_min
    offset, has_min, times_offset = form.offset, form.mins is not None, times_of(form.offset)

    @device
    def row(p, x, sums):
        sc = scales_of(p)
        total = madd(product(values(p, 0), load_i8x32(x)), pair_0(sc))
        total = total + madd(product(values(p, 1), load_i8x32(x + 32)), pair_1(sc))
        total = total + madd(product(values(p, 2), load_i8x32(x + 64)), pair_2(sc))
        total = total + madd(product(values(p, 3), load_i8x32(x + 96)), pair_3(sc))
        total = total + madd(product(values(p, 4), load_i8x32(x + 128)), pair_4(sc))
        total = total + madd(product(values(p, 5), load_i8x32(x + 160)), pair_5(sc))
        total = total + madd(product(values(p, 6), load_i8x32(x + 192)), pair_6(sc))
        total = total + madd(product(values(p, 7), load_i8x32(x + 224)), pair_7(sc))
        if offset:
            total = total - times_offset(madd(sc, load_i16x16(sums)))
        if has_min:
            return total, madd(mins_of(p), load_i16x16(sums))
        return total, zero_i32()

    @device
    def strip(p, w_row, last, x, k):
        scales, sums, ahead = x + k, x + k + k // 64, p + 8 * w_row
        acc, less, totals, minima = zero_f32(), zero_f32(), eight_sums(), eight_mins()
        for b in range(k // 256):
            v, s = x + 256 * b, sums + 32 * b
            fetch_ahead(ahead + 8 * nbytes * b, 8 * nbytes)
            for r in range(last + 1):  # not unrolled: eight rows at once would not fit the registers
                t, m = row(p + r * w_row, v, s)
                store_i32x8(totals + 32 * r, t)
                if has_min:
                    store_i32x8(minima + 32 * r, m)
            scale = splat_f32(f32(scales + 4 * b))
            p1, p2, p3, p4, p5, p6, p7 = rows_after(p, w_row, last)
            acc = fma(cvt_f32(sum_cells(totals)), gather(p, p1, p2, p3, p4, p5, p6, p7) * scale, acc)
            if has_min:
                m = gather_min(p, p1, p2, p3, p4, p5, p6, p7)
                less = fma(cvt_f32(sum_cells(minima)), m * scale, less)
            p += nbytes
        return acc - less

    return strip


STRIPS = {
    "F32": float_strip(load_f32, f32, 4),
    "F16": float_strip(load_f16, f16, 2),
    "BF16": float_strip(load_bf16, bf16, 2),
}
STRIPS |= {name: strip_small(form) for name, form in SMALL.items()}
STRIPS |= {name: strip_super(form) for name, form in SUPER.items()}
