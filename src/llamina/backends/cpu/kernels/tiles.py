"""Many tokens: strips of 8 rows are unpacked once into tiles, and every token is multiplied with them.

In a tile four consecutive elements of each of the 8 rows lie side by side (32 bytes), so a register's lanes are rows
and no sum across lanes is left to do. The arithmetic per block is that of strips.py: integer sums, then the same fused
multiply-adds in the same order, hence the same bits.

    tile of a strip   uint8 [k/4, 8 rows, 4] | per block: its scales (and mins) for 8 rows
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.memory import f16, f32, i8, i32, set_f32, set_i16, set_i32, stack_of, u8
from llamina.backends.cpu.kernels.products import (
    broadcast_2,
    broadcast_4,
    high_nibbles,
    load_fifth_bits,
    load_nibbles,
    low_nibbles,
    madd,
    mul_u8_i8,
    ones_i16,
    zero_i16,
)
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    fma,
    load_f32,
    load_i8x32,
    load_i16x16,
    mask,
    shift_left,
    shift_right,
    splat_f32,
    splat_i32,
    store_f32,
    store_f32_part,
    store_i8x32,
    zero_f32,
    zero_i32,
)
from llamina.backends.cpu.layout import PANEL, SUPER, tile_bytes

block_bytes = stack_of(256)
tile_size = device(tile_bytes)
bit_4, bits_4_5 = mask(16), mask(0x30)
up_1, up_2, up_3, up_4 = (shift_left(n) for n in (1, 2, 3, 4))
down_1, down_2, down_3 = (shift_right(n) for n in (1, 2, 3))


# ---- a block's elements as unsigned bytes, in their natural order -------------------------------------------


@device
def spread_q4_0(p, q):
    store_i8x32(q, load_nibbles(p + 2))


@device
def spread_q4_1(p, q):
    store_i8x32(q, load_nibbles(p + 4))


@device
def spread_q5_0(p, q):
    store_i8x32(q, load_nibbles(p + 6) | load_fifth_bits(p + 2))


@device
def spread_q5_1(p, q):
    store_i8x32(q, load_nibbles(p + 8) | load_fifth_bits(p + 4))


@device
def spread_q4_k(p, q):
    for j in range(4):
        v = load_i8x32(p + 16 + 32 * j)
        store_i8x32(q + 64 * j, low_nibbles(v))
        store_i8x32(q + 64 * j + 32, high_nibbles(v))


@device
def spread_q5_k(p, q):
    h = load_i8x32(p + 16)
    a, b = load_i8x32(p + 48), load_i8x32(p + 80)
    c, d = load_i8x32(p + 112), load_i8x32(p + 144)
    store_i8x32(q, low_nibbles(a) | bit_4(up_4(h)))
    store_i8x32(q + 32, high_nibbles(a) | bit_4(up_3(h)))
    store_i8x32(q + 64, low_nibbles(b) | bit_4(up_2(h)))
    store_i8x32(q + 96, high_nibbles(b) | bit_4(up_1(h)))
    store_i8x32(q + 128, low_nibbles(c) | bit_4(h))
    store_i8x32(q + 160, high_nibbles(c) | bit_4(down_1(h)))
    store_i8x32(q + 192, low_nibbles(d) | bit_4(down_2(h)))
    store_i8x32(q + 224, high_nibbles(d) | bit_4(down_3(h)))


@device
def spread_q6_k(p, q):
    for j in range(2):
        a, b, h = load_i8x32(p + 64 * j), load_i8x32(p + 64 * j + 32), load_i8x32(p + 128 + 32 * j)
        store_i8x32(q + 128 * j, low_nibbles(a) | bits_4_5(up_4(h)))
        store_i8x32(q + 128 * j + 32, low_nibbles(b) | bits_4_5(up_2(h)))
        store_i8x32(q + 128 * j + 64, high_nibbles(a) | bits_4_5(h))
        store_i8x32(q + 128 * j + 96, high_nibbles(b) | bits_4_5(down_2(h)))


@device
def interleave(q, target, n):
    """Row r's n bytes into the tile, `target` being its first cell."""
    for i in range(0, n, 4):
        set_i32(target + 8 * i, i32(q + i))


# ---- blocks of 32 -------------------------------------------------------------------------------------------


def unpack_32(spread: Any, nbytes: int, has_min: bool) -> Any:
    """Scales and mins per block: float32[8] | float32[8]."""

    @device
    def unpack(w, w_row, last, k, tile):
        q = block_bytes()
        scales = tile + 8 * k
        for r in range(8):
            p = w + min(r, last) * w_row
            for b in range(k // 32):
                spread(p, q)
                interleave(q, tile + 256 * b + 4 * r, 32)
                set_f32(scales + 64 * b + 4 * r, f16(p))
                set_f32(scales + 64 * b + 32 + 4 * r, f16(p + 2) if has_min else np.float32(0))
                p += nbytes

    return unpack


@device
def dots_32(tile, x0, x1, x2, x3, steps):
    """16-bit products of 32 elements with 4 tokens, for one strip; summed as far as 16 bits allow, then widened."""
    t0 = t1 = t2 = t3 = zero_i32()
    for i in range(0, 8, steps):
        a0 = a1 = a2 = a3 = zero_i16()
        for j in range(i, i + steps):
            w = load_i8x32(tile + 32 * j)
            a0 = a0 + mul_u8_i8(w, broadcast_4(x0 + 4 * j))
            a1 = a1 + mul_u8_i8(w, broadcast_4(x1 + 4 * j))
            a2 = a2 + mul_u8_i8(w, broadcast_4(x2 + 4 * j))
            a3 = a3 + mul_u8_i8(w, broadcast_4(x3 + 4 * j))
        t0 = t0 + madd(a0, ones_i16())
        t1 = t1 + madd(a1, ones_i16())
        t2 = t2 + madd(a2, ones_i16())
        t3 = t3 + madd(a3, ones_i16())
    return t0, t1, t2, t3


def multiply_32(steps: int, offset: int, has_min: bool) -> Any:
    """One strip's tile times 4 tokens → 4 registers of 8 rows."""

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
            at = 32 * b
            t0, t1, t2, t3 = dots_32(tile + 256 * b, x0 + at, x1 + at, x2 + at, x3 + at, steps)
            d, m = load_f32(tile + 8 * k + 64 * b), load_f32(tile + 8 * k + 64 * b + 32)
            f0 = finish(t0, x0, k, b, d, m, f0)
            f1 = finish(t1, x1, k, b, d, m, f1)
            f2 = finish(t2, x2, k, b, d, m, f2)
            f3 = finish(t3, x3, k, b, d, m, f3)
        return f0, f1, f2, f3

    return multiply


# ---- blocks of 256 ------------------------------------------------------------------------------------------


@device
def six_bits(p, j):
    """Scale j (0..7) or min j-8 (8..15) of the 12 packed bytes."""
    n = j & 7
    if n < 4:
        return u8(p + n + (4 if j >= 8 else 0)) & 63
    low = u8(p + 4 + n) >> 4 if j >= 8 else u8(p + 4 + n) & 15
    return low | (u8(p + n + (0 if j >= 8 else -4)) >> 6) << 4


@device
def super_k(p, cell, r):
    """Q4_K and Q5_K: scales and mins of runs of 32."""
    for j in range(8):
        s = six_bits(p + 4, j)  # a run of 32 is two of 16
        for twice in range(2):
            set_i16(cell + 32 * (2 * j + twice) + 4 * r, s)
            set_i16(cell + 32 * (2 * j + twice) + 4 * r + 2, s)
        set_i16(cell + 512 + 32 * (j // 2) + 4 * r + 2 * (j & 1), six_bits(p + 4, 8 + j))
    set_f32(cell + 768 + 4 * r, f16(p))
    set_f32(cell + 800 + 4 * r, f16(p + 2))


@device
def super_q6_k(p, cell, r):
    """Q6_K: signed scales of runs of 16; the offset of 32 is taken out with the sums of 16."""
    for j in range(16):
        s = i8(p + 192 + j)
        set_i16(cell + 32 * j + 4 * r, s)
        set_i16(cell + 32 * j + 4 * r + 2, s)
        set_i16(cell + 512 + 32 * (j // 2) + 4 * r + 2 * (j & 1), s)
    set_f32(cell + 768 + 4 * r, f16(p + 208))


def unpack_256(spread: Any, supers: Any, nbytes: int) -> Any:
    @device
    def unpack(w, w_row, last, k, tile):
        q = block_bytes()
        for r in range(8):
            p = w + min(r, last) * w_row
            for b in range(k // 256):
                spread(p, q)
                interleave(q, tile + 2048 * b + 4 * r, 256)
                supers(p, tile + 8 * k + SUPER * b, r)
                p += nbytes

    return unpack


@device
def dots_16(tile, x0, x1, x2, x3, scale, steps, t0, t1, t2, t3):
    """16 elements times 4 tokens, scaled, onto the block's sums."""
    for i in range(0, 4, steps):
        a0 = a1 = a2 = a3 = zero_i16()
        for j in range(i, i + steps):
            w = load_i8x32(tile + 32 * j)
            a0 = a0 + mul_u8_i8(w, broadcast_4(x0 + 4 * j))
            a1 = a1 + mul_u8_i8(w, broadcast_4(x1 + 4 * j))
            a2 = a2 + mul_u8_i8(w, broadcast_4(x2 + 4 * j))
            a3 = a3 + mul_u8_i8(w, broadcast_4(x3 + 4 * j))
        t0 = t0 + madd(a0, scale)
        t1 = t1 + madd(a1, scale)
        t2 = t2 + madd(a2, scale)
        t3 = t3 + madd(a3, scale)
    return t0, t1, t2, t3


@device
def dots_32_scaled(tile, x0, x1, x2, x3, scale, t0, t1, t2, t3):
    """32 elements of at most 4 bits, which 16-bit sums can hold."""
    a0 = a1 = a2 = a3 = zero_i16()
    for j in range(8):
        w = load_i8x32(tile + 32 * j)
        a0 = a0 + mul_u8_i8(w, broadcast_4(x0 + 4 * j))
        a1 = a1 + mul_u8_i8(w, broadcast_4(x1 + 4 * j))
        a2 = a2 + mul_u8_i8(w, broadcast_4(x2 + 4 * j))
        a3 = a3 + mul_u8_i8(w, broadcast_4(x3 + 4 * j))
    return t0 + madd(a0, scale), t1 + madd(a1, scale), t2 + madd(a2, scale), t3 + madd(a3, scale)


@device
def pair_sums(cell, sums, n):
    """Σ min (or scale) · Σx over n pairs of runs."""
    total = zero_i32()
    for j in range(n):
        total = total + madd(load_i16x16(cell + 512 + 32 * j), broadcast_2(sums + 4 * j))
    return total


@device
def times_32(total):
    total = total + total
    total = total + total
    total = total + total
    total = total + total
    return total + total


def multiply_256(steps: int, has_min: bool) -> Any:
    """One strip's tile times 4 tokens; `steps` is how many 16-bit products can be summed (8: runs of 32)."""

    @device
    def block(tile, cell, x0, x1, x2, x3, runs):
        """`runs` is 16, but known only at run time: unrolled whole, the registers would not do."""
        t0 = t1 = t2 = t3 = zero_i32()
        if steps == 8:
            for j in range(runs // 2):
                at, scale = 32 * j, load_i16x16(cell + 64 * j)
                t0, t1, t2, t3 = dots_32_scaled(
                    tile + 8 * at, x0 + at, x1 + at, x2 + at, x3 + at, scale, t0, t1, t2, t3
                )
        else:
            for j in range(runs):
                at, scale = 16 * j, load_i16x16(cell + 32 * j)
                t0, t1, t2, t3 = dots_16(
                    tile + 8 * at, x0 + at, x1 + at, x2 + at, x3 + at, scale, steps, t0, t1, t2, t3
                )
        return t0, t1, t2, t3

    @device
    def finish(total, x, k, b, cell, acc, less):
        scale, sums = splat_f32(f32(x + k + 4 * b)), x + k + k // 64 + 64 * b
        if has_min:
            mins = pair_sums(cell, sums + 48, 4)
            less = fma(cvt_f32(mins), load_f32(cell + 800) * scale, less)
        else:
            total = total - times_32(pair_sums(cell, sums, 8))
        return fma(cvt_f32(total), load_f32(cell + 768) * scale, acc), less

    @device
    def multiply(tile, k, x0, x1, x2, x3):
        f0 = f1 = f2 = f3 = m0 = m1 = m2 = m3 = zero_f32()
        for b in range(k // 256):
            at, cell = 256 * b, tile + 8 * k + SUPER * b
            t0, t1, t2, t3 = block(tile + 8 * at, cell, x0 + at, x1 + at, x2 + at, x3 + at, min(16, k // 16))
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


def multiply_tiles(unpack: Any, multiply: Any) -> Any:
    """Rows [low, high) of a matrix times `items` tokens; `scratch` holds this thread's panel of tiles."""

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch):
        size = tile_size(k)
        strips = max(PANEL // size, 1)
        for panel in range(low, high, 8 * strips):
            end = min(panel + 8 * strips, high)
            for r in range(panel, end, 8):
                unpack(w + r * w_row, w_row, min(end - r, 8) - 1, k, scratch + (r - panel) // 8 * size)
            for item in range(0, items, 4):
                i1, i2, i3 = min(item + 1, items - 1), min(item + 2, items - 1), min(item + 3, items - 1)
                x0, x1, x2, x3 = x + item * x_item, x + i1 * x_item, x + i2 * x_item, x + i3 * x_item
                for r in range(panel, end, 8):
                    last, tile = min(end - r, 8) - 1, scratch + (r - panel) // 8 * size
                    f0, f1, f2, f3 = multiply(tile, k, x0, x1, x2, x3)
                    put(out + item * out_item + 4 * r, f0, last)
                    put(out + i1 * out_item + 4 * r, f1, last)
                    put(out + i2 * out_item + 4 * r, f2, last)
                    put(out + i3 * out_item + 4 * r, f3, last)

    return run


TILES = {
    "Q4_0": multiply_tiles(unpack_32(spread_q4_0, 18, False), multiply_32(8, 8, False)),
    "Q4_1": multiply_tiles(unpack_32(spread_q4_1, 20, True), multiply_32(8, 0, True)),
    "Q5_0": multiply_tiles(unpack_32(spread_q5_0, 22, False), multiply_32(4, 16, False)),
    "Q5_1": multiply_tiles(unpack_32(spread_q5_1, 24, True), multiply_32(4, 0, True)),
    "Q4_K": multiply_tiles(unpack_256(spread_q4_k, super_k, 144), multiply_256(8, True)),
    "Q5_K": multiply_tiles(unpack_256(spread_q5_k, super_k, 176), multiply_256(4, True)),
    "Q6_K": multiply_tiles(unpack_256(spread_q6_k, super_q6_k, 210), multiply_256(2, False)),
}
