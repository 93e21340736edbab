"""Many tokens: strips of 8 rows are unpacked once into tiles, and every token is multiplied with them.

In a tile four consecutive elements of each of the 8 rows lie side by side (32 bytes), so a register's lanes are rows
and no sum across lanes is left to do. The arithmetic per block is that of strips.py: integer sums, then the same fused
multiply-adds in the same order, hence the same bits.

    tile of a strip   uint8 [k/4, 8 rows, 4] | per block: its scales (and mins) for 8 rows
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.features import HAS_SDOT, HAS_VNNI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats import SMALL, SUPER, Small, Super, products_in_16_bits
from llamina.backends.cpu.kernels.memory import f16, f32, i16, i32, set_f32, set_i16, set_i32, stack_of
from llamina.backends.cpu.kernels.products import (
    add_dot,
    add_dot_signed,
    broadcast_2,
    broadcast_4,
    low_halves,
    madd,
    mul_i8_i8,
    mul_u8_i8,
    ones_i16,
    times_of,
    zero_i16,
)
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    first_f32,
    fma,
    load_f32,
    load_i8x32,
    load_i16x16,
    splat_f32,
    splat_i32,
    store_f32,
    store_f32_part,
    store_i8x32,
    store_i16x16,
    zero_f32,
    zero_i32,
)
from llamina.backends.cpu.layout import PANEL, SUPER_CELL, tile_bytes

block_bytes, block_scales = stack_of(256), stack_of(64)
tile_size = device(tile_bytes)


@device
def interleave(q, target, n):
    """Row r's n bytes into the tile, `target` being its first cell."""
    for i in range(0, n, 4):
        set_i32(target + 8 * i, i32(q + i))


# ---- blocks of 32 (64, 128) ---------------------------------------------------------------------------------


def unpack_small(form: Small) -> Any:
    """Scales and mins per run of 32: float32[8] | float32[8]."""
    values, nbytes, runs, min_at, gather = form.values, form.nbytes, form.runs, form.min_at, form.gather

    @device
    def unpack(w, w_row, last, k, tile):
        q, scales = block_bytes(), tile + 8 * k
        for r in range(8):
            p = w + min(r, last) * w_row
            for b in range(k // 32):
                store_i8x32(q, values(p, b % runs))
                interleave(q, tile + 256 * b + 4 * r, 32)
                set_f32(scales + 64 * b + 4 * r, first_f32(gather(p, p, p, p, p, p, p, p)))
                if min_at:
                    set_f32(scales + 64 * b + 32 + 4 * r, f16(p + min_at))
                if b % runs == runs - 1:
                    p += nbytes

    return unpack


def dots(product: Any, steps: int, length: int) -> Any:
    """`length` elements of a strip times 4 tokens, scaled, onto the sums: `steps` products are added in 16 bits."""

    @device
    def run(tile, x0, x1, x2, x3, scale, t0, t1, t2, t3):
        for i in range(0, length // 4, steps):
            a0 = a1 = a2 = a3 = zero_i16()
            for j in range(i, i + steps):
                w = load_i8x32(tile + 32 * j)
                a0 = a0 + product(w, broadcast_4(x0 + 4 * j))
                a1 = a1 + product(w, broadcast_4(x1 + 4 * j))
                a2 = a2 + product(w, broadcast_4(x2 + 4 * j))
                a3 = a3 + product(w, broadcast_4(x3 + 4 * j))
            t0 = t0 + madd(a0, scale)
            t1 = t1 + madd(a1, scale)
            t2 = t2 + madd(a2, scale)
            t3 = t3 + madd(a3, scale)
        return t0, t1, t2, t3

    return run


def dots_in_32_bits(add: Any, length: int) -> Any:
    """The same where the CPU sums four products at once: nothing can overflow, and a run is scaled when it is whole."""

    @device
    def run(tile, x0, x1, x2, x3, scale, t0, t1, t2, t3):
        a0 = a1 = a2 = a3 = zero_i32()
        for j in range(length // 4):
            w = load_i8x32(tile + 32 * j)
            a0 = add(a0, w, broadcast_4(x0 + 4 * j))
            a1 = add(a1, w, broadcast_4(x1 + 4 * j))
            a2 = add(a2, w, broadcast_4(x2 + 4 * j))
            a3 = add(a3, w, broadcast_4(x3 + 4 * j))
        s = low_halves(scale)
        return t0 + a0 * s, t1 + a1 * s, t2 + a2 * s, t3 + a3 * s

    return run


def dots_for(form: Small | Super, length: int) -> Any:
    """Whichever suits this CPU and format."""
    if HAS_VNNI or HAS_SDOT:
        return dots_in_32_bits(add_dot_signed if form.signed else add_dot, length)
    steps = min(products_in_16_bits(form.most, form.signed), length // 4)
    return dots(mul_i8_i8 if form.signed else mul_u8_i8, steps, length)


def multiply_small(form: Small) -> Any:
    """One strip's tile times 4 tokens → 4 registers of 8 rows."""
    offset, has_min = form.offset, bool(form.min_at)
    dots_32 = dots_for(form, 32)

    @device
    def finish(total, x, k, b, d, m, acc):
        scale = f32(x + k + 4 * b)
        sums = x + k + k // 8 + 8 * b
        sum_x = i32(sums) + i32(sums + 4)
        if offset:
            total = total - splat_i32(np.int32(offset * sum_x))
        acc = fma(cvt_f32(total), d * splat_f32(scale), acc)
        if has_min:
            acc = fma(m, splat_f32(scale * np.float32(sum_x)), acc)
        return acc

    @device
    def multiply(tile, k, x0, x1, x2, x3):
        f0 = f1 = f2 = f3 = zero_f32()
        for b in range(k // 32):
            at, z = 32 * b, zero_i32()
            t0, t1, t2, t3 = dots_32(tile + 256 * b, x0 + at, x1 + at, x2 + at, x3 + at, ones_i16(), z, z, z, z)
            d, m = load_f32(tile + 8 * k + 64 * b), load_f32(tile + 8 * k + 64 * b + 32)
            f0 = finish(t0, x0, k, b, d, m, f0)
            f1 = finish(t1, x1, k, b, d, m, f1)
            f2 = finish(t2, x2, k, b, d, m, f2)
            f3 = finish(t3, x3, k, b, d, m, f3)
        return f0, f1, f2, f3

    return multiply


# ---- blocks of 256 ------------------------------------------------------------------------------------------


def unpack_super(form: Super) -> Any:
    """Beside the elements, per block: 16 runs' scales (twice each), 8 pairs' mins or scales, d, dmin."""
    values, scales_of, nbytes, gather = form.values, form.scales, form.nbytes, form.gather
    pairs_of, gather_min, has_min = form.mins or form.scales, form.gather_min or form.gather, form.mins is not None

    @device
    def cells(p, cell, r):
        s = block_scales()
        store_i16x16(s, scales_of(p))
        store_i16x16(s + 32, pairs_of(p))
        for j in range(16):
            set_i16(cell + 32 * j + 4 * r, i16(s + 2 * j))
            set_i16(cell + 32 * j + 4 * r + 2, i16(s + 2 * j))
            set_i16(cell + 512 + 32 * (j // 2) + 4 * r + 2 * (j & 1), i16(s + 32 + 2 * j))
        set_f32(cell + 768 + 4 * r, first_f32(gather(p, p, p, p, p, p, p, p)))
        if has_min:
            set_f32(cell + 800 + 4 * r, first_f32(gather_min(p, p, p, p, p, p, p, p)))

    @device
    def unpack(w, w_row, last, k, tile):
        q = block_bytes()
        for r in range(8):
            p = w + min(r, last) * w_row
            for b in range(k // 256):
                store_i8x32(q, values(p, 0))
                store_i8x32(q + 32, values(p, 1))
                store_i8x32(q + 64, values(p, 2))
                store_i8x32(q + 96, values(p, 3))
                store_i8x32(q + 128, values(p, 4))
                store_i8x32(q + 160, values(p, 5))
                store_i8x32(q + 192, values(p, 6))
                store_i8x32(q + 224, values(p, 7))
                interleave(q, tile + 2048 * b + 4 * r, 256)
                cells(p, tile + 8 * k + SUPER_CELL * b, r)
                p += nbytes

    return unpack


@device
def pair_sums(cell, sums):
    """Σ min (or scale) · Σx over the 8 pairs of runs."""
    total = zero_i32()
    for j in range(8):
        total = total + madd(load_i16x16(cell + 512 + 32 * j), broadcast_2(sums + 4 * j))
    return total


def multiply_super(form: Super) -> Any:
    """One strip's tile times 4 tokens → 4 registers of 8 rows."""
    offset, has_min, times_offset = form.offset, form.mins is not None, times_of(form.offset)
    length = 32 if form.by_32 else 16  # of the runs that are scaled alike
    dots_run = dots_for(form, length)

    @device
    def block(tile, cell, x0, x1, x2, x3, runs):
        """`runs` follows from `length`, but is known only at run time: unrolled whole, the registers would not do."""
        t0 = t1 = t2 = t3 = zero_i32()
        for j in range(runs):
            at, scale = length * j, load_i16x16(cell + 2 * length * j)
            t0, t1, t2, t3 = dots_run(tile + 8 * at, x0 + at, x1 + at, x2 + at, x3 + at, scale, t0, t1, t2, t3)
        return t0, t1, t2, t3

    @device
    def finish(total, x, k, b, cell, acc, less):
        scale, sums = splat_f32(f32(x + k + 4 * b)), x + k + k // 64 + 32 * b
        if has_min:
            less = fma(cvt_f32(pair_sums(cell, sums)), load_f32(cell + 800) * scale, less)
        if offset:
            total = total - times_offset(pair_sums(cell, sums))
        return fma(cvt_f32(total), load_f32(cell + 768) * scale, acc), less

    @device
    def multiply(tile, k, x0, x1, x2, x3):
        f0 = f1 = f2 = f3 = m0 = m1 = m2 = m3 = zero_f32()
        for b in range(k // 256):
            at, cell = 256 * b, tile + 8 * k + SUPER_CELL * b
            runs = min(256, k) // length
            t0, t1, t2, t3 = block(tile + 8 * at, cell, x0 + at, x1 + at, x2 + at, x3 + at, runs)
            f0, m0 = finish(t0, x0, k, b, cell, f0, m0)
            f1, m1 = finish(t1, x1, k, b, cell, f1, m1)
            f2, m2 = finish(t2, x2, k, b, cell, f2, m2)
            f3, m3 = finish(t3, x3, k, b, cell, f3, m3)
        return f0 - m0, f1 - m1, f2 - m2, f3 - m3

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


def multiply_tiles(unpack: Any, multiply: Any) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch` holds this thread's panel of tiles.

    With `order`, a list of item numbers, only those are multiplied; item n reads input n // share and writes output n.
    """

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch, order, share):
        size = tile_size(k)
        strips = max(PANEL // size, 1)
        for panel in range(low, high, 8 * strips):
            end = min(panel + 8 * strips, high)
            for r in range(panel, end, 8):
                unpack(w + r * w_row, w_row, min(end - r, 8) - 1, k, scratch + (r - panel) // 8 * size)
            for item in range(0, items, 4):
                i0, i1 = item_at(order, item, items), item_at(order, item + 1, items)
                i2, i3 = item_at(order, item + 2, items), item_at(order, item + 3, items)
                x0, x1 = x + i0 // share * x_item, x + i1 // share * x_item
                x2, x3 = x + i2 // share * x_item, x + i3 // share * x_item
                for r in range(panel, end, 8):
                    last, tile = min(end - r, 8) - 1, scratch + (r - panel) // 8 * size
                    f0, f1, f2, f3 = multiply(tile, k, x0, x1, x2, x3)
                    put(out + i0 * out_item + 4 * r, f0, last)
                    put(out + i1 * out_item + 4 * r, f1, last)
                    put(out + i2 * out_item + 4 * r, f2, last)
                    put(out + i3 * out_item + 4 * r, f3, last)

    return run


TILES = {name: multiply_tiles(unpack_small(form), multiply_small(form)) for name, form in SMALL.items()}
TILES |= {name: multiply_tiles(unpack_super(form), multiply_super(form)) for name, form in SUPER.items()}
