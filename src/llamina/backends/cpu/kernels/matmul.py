"""Matrices times tokens: strips of eight rows for the formats that have them, one row at a time for the others."""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.memory import f32, i32, i64, set_f32, stack_of
from llamina.backends.cpu.kernels.products import dot_i8_i8
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    f32x8,
    fma,
    hsum_f32,
    load_f32,
    load_i8x32,
    shuffle_of,
    splat_f32,
    store_f32,
    store_f32_part,
    zero_f32,
)
from llamina.backends.cpu.kernels.strips import STRIPS
from llamina.backends.cpu.kernels.tiles import TILES
from llamina.backends.cpu.kernels.unpack import UNPACK
from llamina.backends.cpu.kernels.work import first
from llamina.gguf import TENSOR_TYPES

MANY = 8  # tokens from which unpacking pays
values, scales_, mins_ = stack_of(256), stack_of(96), stack_of(96)  # read by whole vectors
spread = shuffle_of(f32x8, f32x8, [0, 0, 0, 0, 1, 1, 1, 1])


def multiply_strips(strip: Any) -> Any:
    """Rows [low, high) of one matrix times `items` tokens."""

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k):
        for r in range(low, high, 8):
            last, p = min(high - r, 8) - 1, w + r * w_row
            for item in range(items):
                total = strip(p, w_row, last, x + item * x_item, k)
                target = out + item * out_item + 4 * r
                if last == 7:
                    store_f32(target, total)
                else:
                    store_f32_part(target, total, last + 1)

    return run


def multiply_rows(unpack: Any, block: int, nbytes: int) -> Any:
    """The same for any format: each block is unpacked once and multiplied with every token.

    Sums of 16 are scaled one by one; `out` holds the sums over the blocks so far.
    """

    @device
    def run(w, w_row, low, high, x, x_item, items, out, out_item, k):
        q, s, m = values(), scales_(), mins_()
        for r in range(low, high):
            for item in range(items):
                set_f32(out + item * out_item + 4 * r, np.float32(0))
            for b in range(k // block):
                unpack(w + r * w_row + b * nbytes, q, s, m)
                for item in range(items):
                    at = x + item * x_item
                    scales, sums = at + k + 4 * (b * block // 32), at + k + k // 8 + 4 * (b * block // 16)
                    total, less = zero_f32(), np.float32(0)
                    for j in range(block // 32):
                        scale = f32(scales + 4 * j)
                        dots = dot_i8_i8(load_i8x32(q + 32 * j), load_i8x32(at + b * block + 32 * j))
                        total = fma(cvt_f32(dots), spread(load_f32(s + 8 * j)) * splat_f32(scale), total)
                        less += f32(m + 8 * j) * (scale * np.float32(i32(sums + 8 * j)))
                        less += f32(m + 8 * j + 4) * (scale * np.float32(i32(sums + 8 * j + 4)))
                    target = out + item * out_item + 4 * r
                    set_f32(target, f32(target) + (hsum_f32(total) - less))

    return run


def linear_kernel(few: Any, many: Any | None) -> Any:
    """`few` tokens go one by one; from MANY on the rows are unpacked into tiles, where the format has them."""

    @kernel
    def run(thread, threads, count, x, x_item, outer, w, w_row, out, out_item, rows, k, scratch, scratch_size, worker):
        strips, items = (rows + 7) // 8, i64(count) * outer
        low, high = 8 * first(strips, thread, threads), min(8 * first(strips, thread + 1, threads), rows)
        if many is not None and items >= MANY:
            many(w, w_row, low, high, x, x_item, items, out, out_item, k, scratch + worker * scratch_size)
        else:
            few(w, w_row, low, high, x, x_item, items, out, out_item, k)

    return run


def experts_kernel(multiply: Any) -> Any:
    """Item j of a row goes through matrix ids[j] (or j itself without ids); `x_outer` 1 shares one input."""

    @kernel
    def run(
        thread, threads, count, x, x_item, x_outer, ids, ids_row, outer, w, w_expert, w_row, out, out_item, rows, k
    ):
        strips = (rows + 7) // 8
        low, high = 8 * first(strips, thread, threads), min(8 * first(strips, thread + 1, threads), rows)
        for item in range(i64(count) * outer):
            row, j = item // outer, item % outer
            expert = i32(ids + row * ids_row + 4 * j) if ids else j
            source = x + (row * x_outer + (j if x_outer > 1 else 0)) * x_item
            multiply(w + expert * w_expert, w_row, low, high, source, x_item, 1, out + item * out_item, out_item, k)

    return run


_BLOCKS = {t.name: (t.block, t.nbytes) for t in TENSOR_TYPES.values()}
MULTIPLY = {name: multiply_rows(unpack, *_BLOCKS[name]) for name, unpack in UNPACK.items()}
MULTIPLY |= {name: multiply_strips(strip) for name, strip in STRIPS.items()}
KERNELS = {f"linear.{name}": linear_kernel(multiply, TILES.get(name)) for name, multiply in MULTIPLY.items()}
KERNELS |= {f"experts.{name}": experts_kernel(multiply) for name, multiply in MULTIPLY.items()}
