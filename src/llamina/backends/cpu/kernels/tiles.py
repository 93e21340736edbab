"""Many tokens: strips of 8 rows are unpacked once into tiles, and every token is multiplied with them.

In a tile four consecutive elements of each of the 8 rows lie side by side (32 bytes; two where they are words), so a
register's lanes are rows and no sum across lanes is left to do. Two tiles and four tokens meet at a time. The
arithmetic per block is that of strips.py: integer sums, then the same fused multiply-adds in the same order, hence the
same bits.

    tile of a strip   uint8 [k/4, 8 rows, 4] or int16 [k/2, 8 rows, 2] | per block: its scales (and mins) for 8 rows
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.formats import SMALL, SUPER, Small, Super, halves_at
from llamina.backends.cpu.kernels.memory import f32, i32, pointer, stack_of
from llamina.backends.cpu.kernels.products import broadcast_2, madd, ones_i16, times_of
from llamina.backends.cpu.kernels.simd import (
    I32,
    I64,
    constant,
    cvt_f32,
    fma,
    i8x32,
    i16x16,
    load_f32,
    load_i16x16,
    op,
    shuffle_of,
    splat_f32,
    splat_i32,
    store_f32,
    store_f32_part,
    store_i8x32,
    store_i16x16,
    zero_f32,
    zero_i32,
)
from llamina.backends.cpu.kernels.strips import rows_after
from llamina.backends.cpu.kernels.tiles_columns import byte_columns, memory_columns, nibble_columns, word_columns
from llamina.backends.cpu.kernels.tiles_dots import biased, dots_for, in_words, offset_of
from llamina.backends.cpu.kernels.tiles_tokens import gather_small, gather_super
from llamina.backends.cpu.layout import PANEL, SMALL_SIDE, SUPER_CELL, SUPER_SIDE, TILE_TOKENS, group_bytes, tile_bytes

# ---- blocks of 32 (64, 128) ---------------------------------------------------------------------------------

up_128 = op(i8x32, (i8x32,), lambda b, x: b.xor(x, constant(i8x32, [-128] * 32)))


def unpack_small(form: Small) -> Any:
    """Scales and mins per run of 32: float32[8] | float32[8]."""
    values, nbytes, runs, gather, has_min = form.values, form.nbytes, form.runs, form.gather, bool(form.min_at)
    gather_min, up, words = halves_at(form.min_at), biased(form), in_words(form)
    columns, run_bytes = (word_columns, 512) if words else (byte_columns, 256)

    @device
    def elements(p, j):
        return up_128(values(p, j)) if up else values(p, j)

    @routine
    def unpack(p0, w_row, last, k, tile):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        scales = tile + run_bytes * (k // 32)
        for b in range(k // 32):
            j = b % runs
            columns(
                tile + run_bytes * b,
                elements(p0, j), elements(p1, j), elements(p2, j), elements(p3, j),
                elements(p4, j), elements(p5, j), elements(p6, j), elements(p7, j),
            )  # fmt: skip
            store_f32(scales + 64 * b, gather(p0, p1, p2, p3, p4, p5, p6, p7))
            if has_min:
                store_f32(scales + 64 * b + 32, gather_min(p0, p1, p2, p3, p4, p5, p6, p7))
            if j == runs - 1:
                p0, p1, p2, p3 = p0 + nbytes, p1 + nbytes, p2 + nbytes, p3 + nbytes
                p4, p5, p6, p7 = p4 + nbytes, p5 + nbytes, p6 + nbytes, p7 + nbytes

    return unpack


def multiply_small(form: Small) -> Any:
    """Two tiles times a group of tokens → two times 4 registers of 8 rows."""
    offset, has_min, words, dots = offset_of(form), bool(form.min_at), in_words(form), dots_for(form, 32)
    run_bytes, side = (512, 256) if words else (256, 128)

    @device
    def finish(total, cell, d, m, acc):
        acc = fma(cvt_f32(total), d * splat_f32(f32(cell)), acc)
        return fma(m, splat_f32(f32(cell + 16)), acc) if has_min else acc

    @device
    def less(cell):
        return splat_i32(i32(cell + 32)) if offset else zero_i32()

    @device
    def multiply(p, q, k, x):
        f0 = f1 = f2 = f3 = g0 = g1 = g2 = g3 = zero_f32()
        scales_p, scales_q, one = p + run_bytes * (k // 32), q + run_bytes * (k // 32), ones_i16()
        for b in range(k // 32):
            c0, c1, c2, c3 = x + side, x + side + 4, x + side + 8, x + side + 12
            z0, z1, z2, z3, at = less(c0), less(c1), less(c2), less(c3), run_bytes * b
            s0, s1, s2, s3, t0, t1, t2, t3 = dots(p + at, q + at, x, one, one, z0, z1, z2, z3, z0, z1, z2, z3)
            d, m = load_f32(scales_p + 64 * b), load_f32(scales_p + 64 * b + 32)
            f0, f1 = finish(s0, c0, d, m, f0), finish(s1, c1, d, m, f1)
            f2, f3 = finish(s2, c2, d, m, f2), finish(s3, c3, d, m, f3)
            d, m = load_f32(scales_q + 64 * b), load_f32(scales_q + 64 * b + 32)
            g0, g1 = finish(t0, c0, d, m, g0), finish(t1, c1, d, m, g1)
            g2, g3 = finish(t2, c2, d, m, g2), finish(t3, c3, d, m, g3)
            x += side + SMALL_SIDE
        return f0, f1, f2, f3, g0, g1, g2, g3

    return multiply


# ---- blocks of 256 ------------------------------------------------------------------------------------------

row_elements, row_scales = stack_of(8 * 512), stack_of(8 * 96)
early_twice, late_twice = (shuffle_of(i16x16, i16x16, [n + i // 2 for i in range(16)]) for n in (0, 8))


def _scaled_words(b: Any, v: Any, scales: Any, target: Any) -> None:
    """Two runs of 16 signed bytes times their scales."""
    for half in (0, 16):
        scale = b.load(pointer(b, b.add(scales, I64(half // 8)), ir.IntType(16)))
        undef = ir.Constant(i16x16.ir, ir.Undefined)
        same = b.shuffle_vector(
            b.insert_element(undef, scale, I32(0)), undef, ir.Constant(ir.VectorType(I32, 16), [0] * 16)
        )
        index = ir.Constant(ir.VectorType(I32, 16), list(range(half, half + 16)))
        wide = b.mul(b.sext(b.shuffle_vector(v, v, index), i16x16.ir), same)
        b.store(wide, pointer(b, b.add(target, I64(2 * half)), i16x16.ir)).align = 1


scaled_words = op(types.void, (i8x32, types.intp, types.intp), _scaled_words)


def unpack_super(form: Super) -> Any:
    """Beside the elements, per block: 16 runs' scales (twice each), 8 pairs' mins or scales, d, dmin."""
    values, scales_of, nbytes, gather = form.values, form.scales, form.nbytes, form.gather
    pairs_of, gather_min, has_min = form.mins or form.scales, form.gather_min or form.gather, form.mins is not None
    up, words, pairs_at = biased(form), in_words(form), form.pairs_at
    run_bytes = 64 if words else 32

    @device
    def elements(p, j, scales, target):
        if words:
            scaled_words(values(p, j), scales + 4 * j, target + 64 * j)
        else:
            store_i8x32(target + 32 * j, up_128(values(p, j)) if up else values(p, j))

    @device
    def row(p, target, cell):
        s = scales_of(p)
        if not pairs_at:
            store_i16x16(cell, s)
            elements(p, 0, cell, target)
            elements(p, 1, cell, target)
            elements(p, 2, cell, target)
            elements(p, 3, cell, target)
            elements(p, 4, cell, target)
            elements(p, 5, cell, target)
            elements(p, 6, cell, target)
            elements(p, 7, cell, target)
        store_i16x16(cell, early_twice(s))
        store_i16x16(cell + 32, late_twice(s))
        store_i16x16(cell + 64, pairs_of(p))

    @routine
    def unpack(p, w_row, last, k, tile):
        rows, cells, side = row_elements(), row_scales(), tile + 8 * run_bytes * (k // 32)
        for _ in range(k // 256):
            for r in range(8):
                row(p + min(r, last) * w_row, rows + 8 * run_bytes * r, cells + 96 * r)
            p1, p2, p3, p4, p5, p6, p7 = rows_after(p, w_row, last)
            if pairs_at:
                for i in range(pairs_at, pairs_at + 128, 32):
                    nibble_columns(tile, p + i, p1 + i, p2 + i, p3 + i, p4 + i, p5 + i, p6 + i, p7 + i)
                    tile += 512
            else:
                for j in range(run_bytes // 4):
                    memory_columns(tile, rows + 32 * j, 8 * run_bytes)
                    tile += 256
            for j in range(3):
                memory_columns(side + 256 * j, cells + 32 * j, 96)
            store_f32(side + 768, gather(p, p1, p2, p3, p4, p5, p6, p7))
            if has_min:
                store_f32(side + 800, gather_min(p, p1, p2, p3, p4, p5, p6, p7))
            p, side = p + nbytes, side + SUPER_CELL

    return unpack


@device
def pair_sums(cell, sums):
    """Σ min (or scale) · Σx over the 8 pairs of runs."""
    total = zero_i32()
    for j in range(8):
        total = total + madd(load_i16x16(cell + 512 + 32 * j), broadcast_2(sums + 16 * j))
    return total


def multiply_super(form: Super) -> Any:
    """Two tiles times a group of tokens → two times 4 registers of 8 rows."""
    offset, has_min, words, times_offset = (
        offset_of(form),
        form.mins is not None,
        in_words(form),
        times_of(offset_of(form)),
    )
    length = 256 if words else 32 if form.by_32 else 16  # of the runs that are scaled alike
    run_bytes, side = (4096, 2048) if words else (2048, 1024)
    dots = dots_for(form, length)

    @device
    def block(p, q, cell_p, cell_q, x, runs):
        """`runs` follows from `length`, but is known only at run time: unrolled whole, the registers would not do."""
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero_i32()
        for j in range(runs):
            at, y, cell = length * 8 * j, x + 4 * length * j, 2 * length * j
            s0, s1, s2, s3, t0, t1, t2, t3 = dots(
                p + at, q + at, y, load_i16x16(cell_p + cell), load_i16x16(cell_q + cell),
                s0, s1, s2, s3, t0, t1, t2, t3,
            )  # fmt: skip
        return s0, s1, s2, s3, t0, t1, t2, t3

    @device
    def finish(total, cell, sums, scale, acc, less):
        if has_min:
            less = fma(cvt_f32(pair_sums(cell, sums)), load_f32(cell + 800) * scale, less)
        if offset:
            total = total - times_offset(pair_sums(cell, sums))
        return fma(cvt_f32(total), load_f32(cell + 768) * scale, acc), less

    @device
    def multiply(p, q, k, x):
        f0 = f1 = f2 = f3 = g0 = g1 = g2 = g3 = zero_f32()
        m0 = m1 = m2 = m3 = n0 = n1 = n2 = n3 = zero_f32()
        c, d, runs = p + run_bytes * (k // 256), q + run_bytes * (k // 256), min(256, k) // length
        for _ in range(k // 256):
            s0, s1, s2, s3, t0, t1, t2, t3 = block(p, q, c, d, x, runs)
            sums = x + side
            y = splat_f32(f32(sums + 128))
            f0, m0 = finish(s0, c, sums, y, f0, m0)
            g0, n0 = finish(t0, d, sums, y, g0, n0)
            y = splat_f32(f32(sums + 132))
            f1, m1 = finish(s1, c, sums + 4, y, f1, m1)
            g1, n1 = finish(t1, d, sums + 4, y, g1, n1)
            y = splat_f32(f32(sums + 136))
            f2, m2 = finish(s2, c, sums + 8, y, f2, m2)
            g2, n2 = finish(t2, d, sums + 8, y, g2, n2)
            y = splat_f32(f32(sums + 140))
            f3, m3 = finish(s3, c, sums + 12, y, f3, m3)
            g3, n3 = finish(t3, d, sums + 12, y, g3, n3)
            p, q, c, d, x = p + run_bytes, q + run_bytes, c + SUPER_CELL, d + SUPER_CELL, x + side + SUPER_SIDE
        return f0 - m0, f1 - m1, f2 - m2, f3 - m3, g0 - n0, g1 - n1, g2 - n2, g3 - n3

    return multiply


# ---- the product --------------------------------------------------------------------------------------------


@device
def put(target, value, last):
    if last == 7:
        store_f32(target, value)
    else:
        store_f32_part(target, value, last + 1)


@device
def item_at(order, i, items):
    """The i-th item, past the end the last: of a list, or simply in order."""
    n = min(i, items - 1)
    return i32(order + 4 * n) if order else n


tile_size, group_of = device(tile_bytes), device(group_bytes)


def multiply_tiles(unpack: Any, multiply: Any, gather: Any, words: bool) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch` holds this thread's groups and panel of tiles.

    With `order`, a list of item numbers, only those are multiplied; item n reads input n // share and writes output n.
    """
    width = 2 if words else 1

    @device
    def gather_tokens(x, x_item, first, n, items, k, order, share, groups, size):
        for g in range(0, n, 4):
            i0, i1 = item_at(order, first + g, items), item_at(order, first + g + 1, items)
            i2, i3 = item_at(order, first + g + 2, items), item_at(order, first + g + 3, items)
            x0, x1 = x + i0 // share * x_item, x + i1 // share * x_item
            gather(x0, x1, x + i2 // share * x_item, x + i3 // share * x_item, k, groups + g // 4 * size)

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        size, group_size = tile_size(k, width), group_of(k, width)
        strips, groups = max(PANEL // size & ~1, 2), scratch + max(PANEL, 2 * size)
        for first in range(0, items, TILE_TOKENS):
            n = min(items - first, TILE_TOKENS)
            gather_tokens(x, x_item, first, n, items, k, order, share, groups, group_size)
            for panel in range(low, high, 8 * strips):
                end = min(panel + 8 * strips, high)
                for r in range(panel, end, 8):
                    unpack(w + r * w_row, w_row, min(end - r, 8) - 1, k, scratch + (r - panel) // 8 * size)
                for g in range(0, n, 4):
                    o0 = out + item_at(order, first + g, items) * out_item
                    o1 = out + item_at(order, first + g + 1, items) * out_item
                    o2 = out + item_at(order, first + g + 2, items) * out_item
                    o3 = out + item_at(order, first + g + 3, items) * out_item
                    for r in range(panel, end, 16):
                        p = scratch + (r - panel) // 8 * size
                        q = p + size if r + 8 < end else p
                        f0, f1, f2, f3, g0, g1, g2, g3 = multiply(p, q, k, groups + g // 4 * group_size)
                        last = min(end - r, 8) - 1
                        put(o0 + 4 * r, f0, last)
                        put(o1 + 4 * r, f1, last)
                        put(o2 + 4 * r, f2, last)
                        put(o3 + 4 * r, f3, last)
                        if r + 8 < end:
                            last = min(end - r, 16) - 9
                            put(o0 + 4 * r + 32, g0, last)
                            put(o1 + 4 * r + 32, g1, last)
                            put(o2 + 4 * r + 32, g2, last)
                            put(o3 + 4 * r + 32, g3, last)

    return run


def kernel_of(unpack: Any, multiply: Any, gather: Any, form: Small | Super) -> Any:
    return multiply_tiles(unpack(form), multiply(form), gather(in_words(form), offset_of(form)), in_words(form))


TILES = {name: kernel_of(unpack_small, multiply_small, gather_small, form) for name, form in SMALL.items()}
TILES |= {name: kernel_of(unpack_super, multiply_super, gather_super, form) for name, form in SUPER.items()}
