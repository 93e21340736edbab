"""GEMM: rows are unpacked once into tiles of 8 or 16 of them, and every token is multiplied with these.

In a tile four consecutive elements of each row lie side by side (two where they are words), so a register's lanes are
rows and no sum across lanes is left to do. Two tiles and four tokens meet at a time. The arithmetic per block is that
of gemv/: integer sums, then the same fused multiply-adds in the same order, hence the same bits.

    tile   uint8 [k/4, rows, 4] or int16 [k/2, rows, 2] | per block: its scales (and mins) for all rows

A tile of 16 rows is unpacked in two halves, each of which fills its half of every unit.
"""

from typing import Any

from llamina.backends.cpu.features import HAS_VNNI
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.formats import halves
from llamina.backends.cpu.kernels.formats.blocks import BLOCKS_32, SUPERBLOCKS, Block32, SuperBlock
from llamina.backends.cpu.kernels.gemm import avx2
from llamina.backends.cpu.kernels.gemm.dots import (
    ONLY_AVX2,
    dots_for,
    in_words,
    offset_of,
    products_in_16_bits,
    words_for,
)
from llamina.backends.cpu.kernels.gemm.lanes import (
    as_floats,
    fma,
    load_floats,
    load_ints,
    splat_float,
    splat_int,
    store_eight_floats,
    store_floats,
    store_floats_part,
    times_of,
    zero_floats,
)
from llamina.backends.cpu.kernels.gemm.tokens import gather_32, gather_super, gather_words
from llamina.backends.cpu.kernels.gemm.unpack import unpack_32, unpack_super, unpack_words
from llamina.backends.cpu.kernels.gemv.blocks import prefetch_lines
from llamina.backends.cpu.kernels.vector.memory import f32, i32, stack_of
from llamina.backends.cpu.tiling import (
    FEW,
    LANES,
    PART,
    RESULTS,
    SLICE,
    SMALL_SIDE,
    SUPER_CELL,
    SUPER_SIDE,
    TILE_TOKENS,
    UNIT,
    group_bytes,
    tile_bytes,
)

eight_sums, eight_less = stack_of(8 * UNIT), stack_of(8 * UNIT)


@device
def sum_at(sums, i):
    return load_ints(sums + UNIT * i)


@device
def load_eight(x):
    return (
        load_floats(x), load_floats(x + UNIT), load_floats(x + 2 * UNIT), load_floats(x + 3 * UNIT),
        load_floats(x + 4 * UNIT), load_floats(x + 5 * UNIT), load_floats(x + 6 * UNIT), load_floats(x + 7 * UNIT),
    )  # fmt: skip


# ---- blocks of 32 (64, 128) ---------------------------------------------------------------------------------


def multiply_32(form: Block32) -> Any:
    """Two tiles times a group of tokens, onto the results."""
    return multiply_small_avx2(form) if ONLY_AVX2 else multiply_small_elsewhere(form)


def multiply_small_avx2(form: Block32) -> Any:
    runs = avx2.runs_of_32(products_in_16_bits(form.most), in_words(form), offset_of(form) != 0, form.has_min)

    @device
    def multiply(p, q, c, d, k, x, results):
        runs(p, q, x, c, d, k // 32, results)

    return multiply


def multiply_small_elsewhere(form: Block32) -> Any:
    offset, has_min, words, dots = offset_of(form), form.has_min, in_words(form), dots_for(form, 32)
    run_bytes, side = (16 * UNIT, 256) if words else (8 * UNIT, 128)

    @device
    def finish(total, cell, d, m, acc):
        if offset:
            total = total + splat_int(i32(cell + 32))
        acc = fma(as_floats(total), d * splat_float(f32(cell)), acc)
        return fma(m, splat_float(f32(cell + 16)), acc) if has_min else acc

    @device
    def multiply(p, q, scales_p, scales_q, k, x, results):
        f0, f1, f2, f3, g0, g1, g2, g3 = load_eight(results)
        sums = eight_sums()
        for _ in range(k // 32):
            dots(p, q, x, 0, 0, 1, sums)
            cell = x + side
            d, m = load_floats(scales_p), load_floats(scales_p + UNIT)
            f0, f1 = finish(sum_at(sums, 0), cell, d, m, f0), finish(sum_at(sums, 1), cell + 4, d, m, f1)
            f2, f3 = finish(sum_at(sums, 2), cell + 8, d, m, f2), finish(sum_at(sums, 3), cell + 12, d, m, f3)
            d, m = load_floats(scales_q), load_floats(scales_q + UNIT)
            g0, g1 = finish(sum_at(sums, 4), cell, d, m, g0), finish(sum_at(sums, 5), cell + 4, d, m, g1)
            g2, g3 = finish(sum_at(sums, 6), cell + 8, d, m, g2), finish(sum_at(sums, 7), cell + 12, d, m, g3)
            p, q, x = p + run_bytes, q + run_bytes, cell + SMALL_SIDE
            scales_p, scales_q = scales_p + 2 * UNIT, scales_q + 2 * UNIT
        store_eight_floats(results, f0, f1, f2, f3, g0, g1, g2, g3)

    return multiply


# ---- blocks of 256 ------------------------------------------------------------------------------------------


def mins_by_32(form: SuperBlock) -> bool:
    """Whether a min meets the sum of 32 activations rather than two of 16."""
    return form.by_32 and form.mins is not None


def multiply_super(form: SuperBlock) -> Any:
    """Two tiles times a group of tokens, onto the results."""
    offset, has_min, words = offset_of(form), form.mins is not None, in_words(form)
    length = 32 if words or form.by_32 else 16  # of the runs that are scaled alike
    run_bytes, side = (128 * UNIT, 2048) if words else (64 * UNIT, 1024)
    dots, pair_dots, times_offset = dots_for(form, length), words_for(4 if mins_by_32(form) else 8), times_of(offset)

    @device
    def finish(total, less, cell, scale, acc, acc_less):
        if has_min:
            acc_less = fma(as_floats(less), load_floats(cell + 25 * UNIT) * scale, acc_less)
        if offset:
            total = total - times_offset(less)
        return fma(as_floats(total), load_floats(cell + 24 * UNIT) * scale, acc), acc_less

    @device
    def multiply(p, q, c, d, k, x, results):
        f0, f1, f2, f3, g0, g1, g2, g3 = load_eight(results)
        m0, m1, m2, m3, n0, n1, n2, n3 = load_eight(results + 8 * UNIT)
        s, t = eight_sums(), eight_less()
        for _ in range(k // 256):
            dots(p, q, x, c, d, 256 // length, s)
            sums = x + side
            if has_min or offset:  # Σ min (or scale) · Σx over the pairs of runs
                pair_dots(c + 16 * UNIT, d + 16 * UNIT, sums, 0, 0, 1, t)
            y = splat_float(f32(sums + 128))
            f0, m0 = finish(sum_at(s, 0), sum_at(t, 0), c, y, f0, m0)
            g0, n0 = finish(sum_at(s, 4), sum_at(t, 4), d, y, g0, n0)
            y = splat_float(f32(sums + 132))
            f1, m1 = finish(sum_at(s, 1), sum_at(t, 1), c, y, f1, m1)
            g1, n1 = finish(sum_at(s, 5), sum_at(t, 5), d, y, g1, n1)
            y = splat_float(f32(sums + 136))
            f2, m2 = finish(sum_at(s, 2), sum_at(t, 2), c, y, f2, m2)
            g2, n2 = finish(sum_at(s, 6), sum_at(t, 6), d, y, g2, n2)
            y = splat_float(f32(sums + 140))
            f3, m3 = finish(sum_at(s, 3), sum_at(t, 3), c, y, f3, m3)
            g3, n3 = finish(sum_at(s, 7), sum_at(t, 7), d, y, g3, n3)
            p, q, c, d, x = p + run_bytes, q + run_bytes, c + SUPER_CELL, d + SUPER_CELL, x + side + SUPER_SIDE
        store_eight_floats(results, f0, f1, f2, f3, g0, g1, g2, g3)
        if has_min:
            store_eight_floats(results + 8 * UNIT, m0, m1, m2, m3, n0, n1, n2, n3)

    return multiply


# ---- the product --------------------------------------------------------------------------------------------


@device
def put(target, value, last):
    if last == LANES - 1:
        store_floats(target, value)
    else:
        store_floats_part(target, value, last + 1)


@device
def item_at(order, i, items):
    """The i-th item, past the end the last: of a list, or simply in order."""
    n = min(i, items - 1)
    return i32(order + 4 * n) if order else n


tile_size, group_of = device(tile_bytes), device(group_bytes)


def gemm_rows(form: Block32 | SuperBlock, unpack: Any, multiply: Any, gather: Any, beside: bool = False) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch` holds two tiles, this thread's groups and results.

    Tiles are parts of rows that stay in the first-level cache while the tokens pass by; the results of a part are
    added to those of the parts before. With `order`, a list of item numbers, only those are multiplied; item n reads
    input n // share and writes output n. With `beside` there are exponents beside the weights (`formats/halves`).
    """
    width, nbytes, has_min = (
        2 if in_words(form) else 1,
        form.nbytes,
        isinstance(form, SuperBlock) and form.mins is not None,
    )
    block, run, side = (32 * form.runs, 32, SMALL_SIDE) if isinstance(form, Block32) else (256, 256, SUPER_SIDE)
    run_bytes = 4 * width * run + side  # of a group
    tile_run, tile_side = LANES * width * run, 2 * UNIT if run == 32 else SUPER_CELL
    between = 1 if isinstance(form, Block32) else 2  # unpacking blocks of 256 takes long: it prefetches every other row

    @device
    def prefetch_rows(rows, w_row, n, nbytes, slot, share):
        """Prefetch a slot's share of the next `n` rows.

        A few at a time: a core can wait for few cache lines at once.
        """
        for i in range(slot * share, min(slot * share + share, 2 * LANES // between, n // between)):
            prefetch_lines(rows + (i * between + between - 1) * w_row, nbytes, True)

    @routine
    def gather_tokens(x, x_item, first, n, items, k, order, share, groups, size):
        for g in range(0, n, 4):
            i0, i1 = item_at(order, first + g, items), item_at(order, first + g + 1, items)
            i2, i3 = item_at(order, first + g + 2, items), item_at(order, first + g + 3, items)
            x0, x1 = x + i0 // share * x_item, x + i1 // share * x_item
            gather(x0, x1, x + i2 // share * x_item, x + i3 // share * x_item, k, groups + g // 4 * size)

    @device
    def clear(results, fours):
        for here in range(results, results + fours * RESULTS, RESULTS):
            for i in range(0, (16 if has_min else 8) * UNIT, UNIT):
                store_floats(here + i, zero_floats())

    @device
    def unpack_tile(w, w_row, r, high, length, tile, ahead, exponents, k):
        for half in range(0, LANES, 8):
            row = min(r + half, high - 1)
            here = exponents + row // 8 * (k // 32) * 8
            unpack(w + row * w_row, w_row, min(high - row, 8) - 1, length, tile + 4 * half, ahead, here)

    @device
    def put_tile(out, out_item, order, at, items, r, high, results):
        """A tile's results of four tokens to where they belong."""
        for token in range(4):
            target, value = out + item_at(order, at + token, items) * out_item + 4 * r, load_floats(results)
            if has_min:
                value = value - load_floats(results + 8 * UNIT)
            put(target, value, min(high - r, LANES) - 1)
            results += UNIT

    @routine
    def multiply_rows(
        w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share, exponents
    ):  # fmt: skip
        tile, group_size = tile_size(min(k, PART), width), group_of(k, width)
        results, groups = scratch + 2 * tile, scratch + 2 * tile + TILE_TOKENS // 4 * RESULTS
        for first in range(0, items, TILE_TOKENS):
            n = min(items - first, TILE_TOKENS)
            fours = (n + 3) // 4
            gather_tokens(x, x_item, first, n, items, k, order, share, groups, group_size)
            part = PART // 2 if n <= FEW and k > PART else PART
            for r in range(low, high, 2 * LANES):
                two = r + LANES < high
                p, q = scratch, scratch + tile if two else scratch
                clear(results, fours)
                for start in range(0, k, part):
                    end = min(start + part, k)
                    length, at, slices = end - start, start // block * nbytes, (end - start + SLICE - 1) // SLICE
                    there, rows = w + r * w_row + end // block * nbytes, high - r
                    known = exponents + start // 32 * 8
                    if end == k:  # not these rows' next part comes next, but other rows' first one
                        there, rows = w + (r + 2 * LANES) * w_row, rows - 2 * LANES
                    ahead, asked = there - (w + r * w_row + at), length // block * nbytes
                    few = 1 + (2 * LANES // between - 1) // (fours * slices + 2)  # rows to prefetch at a time
                    prefetch_rows(there, w_row, rows, asked, 0, few)
                    unpack_tile(w + at, w_row, r, high, length, p, ahead, known, k)
                    prefetch_rows(there, w_row, rows, asked, 1, few)
                    if two:
                        unpack_tile(w + at, w_row, r + LANES, high, length, q, ahead, known, k)
                    side, x_part = length // run * tile_run, groups + start // run * run_bytes
                    for g in range(fours):
                        for s in range(0, length, SLICE):
                            prefetch_rows(there, w_row, rows, asked, g * slices + s // SLICE + 2, few)
                            e, c = s // run * tile_run, side + s // run * tile_side
                            x_slice = x_part + g * group_size + s // run * run_bytes
                            n_slice = min(length - s, SLICE)
                            multiply(p + e, q + e, p + c, q + c, n_slice, x_slice, results + g * RESULTS)
                        if end == k:  # the stores of one group wait while the next is multiplied
                            here = results + g * RESULTS
                            put_tile(out, out_item, order, first + 4 * g, items, r, high, here)
                            if two:
                                put_tile(out, out_item, order, first + 4 * g, items, r + LANES, high, here + 4 * UNIT)

    @device
    def multiply_blocks(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        multiply_rows(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share, 0)

    return multiply_rows if beside else multiply_blocks


def gemm_32(form: Block32) -> Any:
    gather = gather_32(in_words(form), offset_of(form))
    return gemm_rows(form, unpack_32(form), multiply_32(form), gather)


def gemm_super(form: SuperBlock) -> Any:
    assert form.side is not None or not mins_by_32(form), "mins come by 32 from a format's own side alone"
    gather = gather_super(in_words(form), mins_by_32(form))
    return gemm_rows(form, unpack_super(form), multiply_super(form), gather)


GEMM = {name: gemm_32(form) for name, form in BLOCKS_32.items()}
GEMM |= {name: gemm_super(form) for name, form in SUPERBLOCKS.items()}
WORDS = {
    name: gemm_rows(halves.FORM, unpack_words(numbers), multiply_32(halves.FORM), gather_words, beside=True)
    for name, numbers in (halves.NUMBERS if HAS_VNNI else {}).items()
}
"""Of float weights as blocks of words."""
