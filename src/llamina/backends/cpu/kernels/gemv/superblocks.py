"""Eight rows of blocks of 256 times one token or four: integers scale their runs, a float the whole.

The arithmetic is blocks.py's.
"""

from typing import Any

from llamina.backends.cpu.features import HAS_AVX512
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.blocks import SUPERBLOCKS, SuperBlock
from llamina.backends.cpu.kernels.formats.codebooks import signed
from llamina.backends.cpu.kernels.formats.wide import EARLY, WIDE
from llamina.backends.cpu.kernels.gemv.blocks import NEAR, prefetch_lines, rows_after
from llamina.backends.cpu.kernels.vector.memory import f32, stack_of
from llamina.backends.cpu.kernels.vector.products import (
    add_madd_wide,
    both_runs,
    fold_i32,
    i16x32,
    load_i8x64,
    madd,
    mul_i8_i8,
    mul_i8_i8_wide,
    mul_u8_i8,
    mul_u8_i8_wide,
    times_of,
    zero_i32_wide,
)
from llamina.backends.cpu.kernels.vector.simd import (
    cvt_f32,
    fma,
    i16x16,
    kept_shuffle,
    load_i8x32,
    load_i16x16,
    load_i32x8,
    row_sums_i32,
    shuffle_of,
    splat_f32,
    store_i32x8,
    zero_f32,
    zero_i32,
)

pair_0, pair_1, pair_2, pair_3, pair_4, pair_5, pair_6, pair_7 = (
    shuffle_of(i16x16, i16x16, [i] * 8 + [8 + i] * 8) for i in range(8)
)
apart = kept_shuffle(i16x16, [*range(0, 16, 2), *range(1, 16, 2)])
"""Even numbers, then odd ones: so each half of a register holds what the pairs above want of it."""


quad_0, quad_1, quad_2, quad_3 = (shuffle_of(i16x16, i16x32, [4 * i + j // 8 for j in range(32)]) for i in range(4))
eight_sums, eight_mins, eight_cells = stack_of(256), stack_of(256), stack_of(768)


@device
def sum_cells(cells):
    """Eight registers in memory → their sums."""
    return row_sums_i32(
        load_i32x8(cells), load_i32x8(cells + 32), load_i32x8(cells + 64), load_i32x8(cells + 96),
        load_i32x8(cells + 128), load_i32x8(cells + 160), load_i32x8(cells + 192), load_i32x8(cells + 224),
    )  # fmt: skip


four_sums, four_mins = stack_of(1024), stack_of(1024)


@device
def store_four(cell, a, b, c, d):
    """Into the cells of four tokens."""
    store_i32x8(cell, a)
    store_i32x8(cell + 256, b)
    store_i32x8(cell + 512, c)
    store_i32x8(cell + 768, d)


def gemv_super(form: SuperBlock, wide: list[Any] | None, early: Any | None) -> Any:
    """d · Σ scale·(dot - offset·Σx) - dmin · Σ min·Σx per block; `wide` and `early` as in formats/wide.py."""
    values, scales_of, mins_of, nbytes = form.values, form.scales, form.mins, form.nbytes
    product, gather, gather_min = mul_i8_i8 if form.signed else mul_u8_i8, form.gather, form.gather_min
    offset, has_min, times_offset = form.offset, form.mins is not None, times_of(form.offset)
    has_signs, sizes, signs = form.signs is not None, form.sizes, form.signs
    product_wide = mul_i8_i8_wide if form.signed else mul_u8_i8_wide
    most_near = NEAR if nbytes < 200 else 0  # Q6_K is multiplied faster than memory brings it

    @device
    def run(p, j, x):
        if has_signs:
            return mul_u8_i8(sizes(p, j), signed(load_i8x32(x), signs(p, j)))
        return product(values(p, j), load_i8x32(x))

    times_0, times_1, times_2, times_3 = wide or (None,) * 4

    @device
    def dot_wide(p, found, sc, x):
        total = add_madd_wide(zero_i32_wide(), times_0(p, found, x), quad_0(sc))
        total = add_madd_wide(total, times_1(p, found, x + 64), quad_1(sc))
        total = add_madd_wide(total, times_2(p, found, x + 128), quad_2(sc))
        return fold_i32(add_madd_wide(total, times_3(p, found, x + 192), quad_3(sc)))

    @device
    def dot(p, found, sc, x):
        two = apart(sc)
        total = madd(run(p, 0, x), pair_0(two))
        total = total + madd(run(p, 1, x + 32), pair_1(two))
        total = total + madd(run(p, 2, x + 64), pair_2(two))
        total = total + madd(run(p, 3, x + 96), pair_3(two))
        total = total + madd(run(p, 4, x + 128), pair_4(two))
        total = total + madd(run(p, 5, x + 160), pair_5(two))
        total = total + madd(run(p, 6, x + 192), pair_6(two))
        return total + madd(run(p, 7, x + 224), pair_7(two))

    dot_of = dot_wide if wide else dot

    @device
    def row(p, found, x, sums):
        sc = scales_of(p)
        total = dot_of(p, found, sc, x)
        if offset and not has_signs:
            total = total - times_offset(madd(sc, load_i16x16(sums)))
        if has_min:
            return total, madd(mins_of(p), load_i16x16(sums))
        return total, zero_i32()

    @device
    def gemv(p, w_row, last, x, k):
        scales, sums, ahead, near = x + k, x + k + k // 64, p + 8 * w_row, 8 * w_row <= most_near
        acc, less, totals, minima, cells = zero_f32(), zero_f32(), eight_sums(), eight_mins(), eight_cells()
        for b in range(k // 256):
            v, s = x + 256 * b, sums + 32 * b
            if early is not None:
                for r in range(last + 1):
                    early(p + r * w_row, cells + 96 * r)
            for r in range(last + 1):  # not unrolled: eight rows at once would not fit the registers
                prefetch_lines(ahead + nbytes * (8 * b + r), nbytes, near)
                t, m = row(p + r * w_row, cells + 96 * r, v, s)
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

    @device
    def run_of_four(v, scale, x0, x1, x2, x3, t0, t1, t2, t3):
        t0 = t0 + madd(product(v, load_i8x32(x0)), scale)
        t1 = t1 + madd(product(v, load_i8x32(x1)), scale)
        t2 = t2 + madd(product(v, load_i8x32(x2)), scale)
        t3 = t3 + madd(product(v, load_i8x32(x3)), scale)
        return t0, t1, t2, t3

    @device
    def block_of_four(p, sc, y0, y1, y2, y3):
        """A row's block times four tokens, unpacked once."""
        a = b = c = d = zero_i32()
        sc = apart(sc)
        a, b, c, d = run_of_four(values(p, 0), pair_0(sc), y0, y1, y2, y3, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 1), pair_1(sc), y0 + 32, y1 + 32, y2 + 32, y3 + 32, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 2), pair_2(sc), y0 + 64, y1 + 64, y2 + 64, y3 + 64, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 3), pair_3(sc), y0 + 96, y1 + 96, y2 + 96, y3 + 96, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 4), pair_4(sc), y0 + 128, y1 + 128, y2 + 128, y3 + 128, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 5), pair_5(sc), y0 + 160, y1 + 160, y2 + 160, y3 + 160, a, b, c, d)
        a, b, c, d = run_of_four(values(p, 6), pair_6(sc), y0 + 192, y1 + 192, y2 + 192, y3 + 192, a, b, c, d)
        return run_of_four(values(p, 7), pair_7(sc), y0 + 224, y1 + 224, y2 + 224, y3 + 224, a, b, c, d)

    @device
    def two_runs_of_four(v, w, scale, x0, x1, x2, x3, t0, t1, t2, t3):
        u = both_runs(v, w)
        t0 = add_madd_wide(t0, product_wide(u, load_i8x64(x0)), scale)
        t1 = add_madd_wide(t1, product_wide(u, load_i8x64(x1)), scale)
        t2 = add_madd_wide(t2, product_wide(u, load_i8x64(x2)), scale)
        t3 = add_madd_wide(t3, product_wide(u, load_i8x64(x3)), scale)
        return t0, t1, t2, t3

    @device
    def block_of_four_wide(p, sc, y0, y1, y2, y3):
        """The same in registers of 512 bits."""
        a = b = c = d = zero_i32_wide()
        v, w = values(p, 0), values(p, 1)
        a, b, c, d = two_runs_of_four(v, w, quad_0(sc), y0, y1, y2, y3, a, b, c, d)
        v, w = values(p, 2), values(p, 3)
        a, b, c, d = two_runs_of_four(v, w, quad_1(sc), y0 + 64, y1 + 64, y2 + 64, y3 + 64, a, b, c, d)
        v, w = values(p, 4), values(p, 5)
        a, b, c, d = two_runs_of_four(v, w, quad_2(sc), y0 + 128, y1 + 128, y2 + 128, y3 + 128, a, b, c, d)
        v, w = values(p, 6), values(p, 7)
        a, b, c, d = two_runs_of_four(v, w, quad_3(sc), y0 + 192, y1 + 192, y2 + 192, y3 + 192, a, b, c, d)
        return fold_i32(a), fold_i32(b), fold_i32(c), fold_i32(d)

    dots_of_four = block_of_four_wide if HAS_AVX512 else block_of_four

    @device
    def row_of_four(p, at, s, x0, x1, x2, x3, totals, minima):
        """Sums of a row's block to the cells of four tokens."""
        sc = scales_of(p)
        a, b, c, d = dots_of_four(p, sc, x0 + at, x1 + at, x2 + at, x3 + at)
        if offset or has_min:
            weigh = mins_of(p) if has_min else sc
            e, f = madd(weigh, load_i16x16(x0 + s)), madd(weigh, load_i16x16(x1 + s))
            g, h = madd(weigh, load_i16x16(x2 + s)), madd(weigh, load_i16x16(x3 + s))
            if has_min:
                store_four(minima, e, f, g, h)
            else:
                a, b = a - times_offset(e), b - times_offset(f)
                c, d = c - times_offset(g), d - times_offset(h)
        store_four(totals, a, b, c, d)

    @device
    def finish(x, k, b, totals, minima, d, m, acc, less):
        scale = splat_f32(f32(x + k + 4 * b))
        if has_min:
            less = fma(cvt_f32(sum_cells(minima)), m * scale, less)
        return fma(cvt_f32(sum_cells(totals)), d * scale, acc), less

    @device
    def four(p, w_row, last, x0, x1, x2, x3, k):
        """The same for four tokens at once."""
        ahead, near, totals, minima = p + 8 * w_row, 8 * w_row <= most_near, four_sums(), four_mins()
        a = b_ = c = d_ = e = f = g = h = zero_f32()
        for b in range(k // 256):
            for r in range(last + 1):
                prefetch_lines(ahead + nbytes * (8 * b + r), nbytes, near)
                row_of_four(
                    p + r * w_row, 256 * b, k + k // 64 + 32 * b, x0, x1, x2, x3, totals + 32 * r, minima + 32 * r
                )
            p1, p2, p3, p4, p5, p6, p7 = rows_after(p, w_row, last)
            d = gather(p, p1, p2, p3, p4, p5, p6, p7)
            m = gather_min(p, p1, p2, p3, p4, p5, p6, p7) if has_min else d
            a, e = finish(x0, k, b, totals, minima, d, m, a, e)
            b_, f = finish(x1, k, b, totals + 256, minima + 256, d, m, b_, f)
            c, g = finish(x2, k, b, totals + 512, minima + 512, d, m, c, g)
            d_, h = finish(x3, k, b, totals + 768, minima + 768, d, m, d_, h)
            p += nbytes
        return a - e, b_ - f, c - g, d_ - h

    return gemv, four


GEMV, GEMV_4 = {}, {}
"""GEMV_4: for the formats whose unpacking is worth sharing and no quicker into tiles."""
for _name, _form in SUPERBLOCKS.items():
    GEMV[_name], _four = gemv_super(_form, WIDE.get(_name), EARLY.get(_name))
    if not _form.pairs_at:
        GEMV_4[_name] = _four
