"""The KV cache: how keys and values lie in a page (floats, or blocks of 32 integers with a scale), and writing them.

One head's page holds PAGE positions. Keys lie as [dim, PAGE], so that a register holds one element of eight keys;
values as [PAGE, dim]. Blocks run along a head's elements. A block of keys is 16 float16 scales, one per position, then
its integers; a row of values is its integers, then a float16 scale per block. Four-bit integers i and i + 16 share a
byte.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core import types

from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.vector.loads import (
    bf16_loader,
    f16_loader,
    i8_loader,
    store_bf16,
    store_f16,
    u4_loader,
    wide,
)
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f16, f32, i32, i64, set_bf16, set_f16, set_f32, set_i8
from llamina.backends.cpu.kernels.vector.simd import (
    Vec,
    abs_f32,
    f32x8,
    fill_of,
    hmax_f32,
    hmin_f32,
    htop_f32,
    load_f32,
    load_f32_part,
    loader,
    max_f32,
    min_f32,
    splat_of,
    store_f32,
    top_f32,
    zero_f32,
)
from llamina.ops.batch import PAGE

RUN = 16  # elements of a key that are read with one scale and one shift
assert PAGE == 16


class Reads(NamedTuple):
    """The functions that read as many keys, or elements of a value, as a register holds."""

    scale: Any  # (keys, start, first) → the scales of these keys, for elements [start, start + RUN)
    key: Any  # (keys, start, i, first) → element start + i of these keys, without their scales
    value: Any  # (row, i, dim) → elements of one position's values


class KvLayout(NamedTuple):
    """The functions that know a type's layout."""

    page: Any  # (dim) → bytes of one head's page
    step: Any  # (dim) → bytes from one position's values to the next
    scaled: bool
    eight: Reads
    wide: Reads
    write_key: Any  # (keys, at, x, dim)
    write_value: Any  # (row, x, dim)


@device
def part(x, i, dim):
    """Eight elements from i on, zeros past the end."""
    return load_f32(x + 4 * i) if i + 8 <= dim else load_f32_part(x + 4 * i, dim - i)


def floats(load_of: Callable[[Vec], Any], store: Any, put: Any, size: int) -> KvLayout:
    @device
    def step(dim):
        return ((dim + 7) & ~7) * size

    @device
    def page(dim):
        return step(dim) * PAGE

    def reads(vec: Vec) -> Reads:
        load, zero = load_of(vec), fill_of(vec, 0.0)

        @device
        def scale(keys, start, first):
            return zero()

        @device
        def key(keys, start, i, first):
            return load(keys + ((start + i) * PAGE + first) * size)

        @device
        def value(row, i, dim):
            return load(row + i * size)

        return Reads(scale, key, value)

    @device
    def write_key(keys, at, x, dim):
        for i in range(dim):
            put(keys + (i * PAGE + at) * size, f32(x + 4 * i))

    @device
    def write_value(row, x, dim):
        for i in range(0, dim, 8):
            store(row + i * size, part(x, i, dim))

    return KvLayout(page, step, False, reads(f32x8), reads(wide), write_key, write_value)


# ---- blocks of 32 -------------------------------------------------------------------------------------------


@device
def extremes(x, start, dim):
    """The least and the greatest of a block; both are NaN if one of it is."""
    low, high, top = zero_f32(), zero_f32(), zero_f32()
    for i in range(start, min(start + 32, dim), 8):
        v = part(x, i, dim)
        low, high, top = min_f32(low, v), max_f32(high, v), top_f32(top, abs_f32(v))
    most = htop_f32(top)
    return (hmin_f32(low), hmax_f32(high)) if most == most else (most, most)


@device
def element(x, i, dim):
    return f32(x + 4 * i) if i < dim else np.float32(0)


def blocks(bits: int) -> KvLayout:
    payload = 4 * bits  # bytes of a block's integers
    lowest, highest = (-127, 127) if bits == 8 else (-8, 7)

    @device
    def step(dim):
        return (dim + 31) // 32 * (payload + 2)

    @device
    def page(dim):
        return step(dim) * PAGE

    def reads(vec: Vec) -> Reads:
        load_f16, load_i8, load_u4 = f16_loader(vec), i8_loader(vec), u4_loader(vec)
        splat = splat_of(vec, types.float32)

        @device
        def scale(keys, start, first):
            return load_f16(keys + start // 32 * ((payload + 2) * PAGE) + 2 * first)

        @device
        def key(keys, start, i, first):
            block = keys + start // 32 * ((payload + 2) * PAGE) + 2 * PAGE
            if bits == 8:
                return load_i8(block + (start % 32 + i) * PAGE + first)
            return load_u4(block + i * PAGE + first, start % 32 // 16)

        @device
        def value(row, i, dim):
            factor = splat(f16(row + (dim + 31) // 32 * payload + i // 32 * 2))
            if bits == 8:
                return load_i8(row + i) * factor
            return load_u4(row + i // 32 * 16 + i % 16, i % 32 // 16) * factor

        return Reads(scale, key, value)

    @device
    def unit(x, start, dim):
        """What the integer 1 stands for in a block, as ggml chooses it."""
        low, high = extremes(x, start, dim)
        if bits == 8:
            return max(high, -low) / np.float32(127)
        return (low if -low >= high else high) / np.float32(-8)

    @device
    def integer(x, i, dim, inverse):
        return max(lowest, min(highest, int(np.rint(element(x, i, dim) * inverse))))

    @device
    def put_block(target, gap, x, start, dim, inverse):
        """A block's integers, `gap` bytes apart."""
        if bits == 8:
            for i in range(32):
                set_i8(target + i * gap, integer(x, start + i, dim, inverse))
        else:
            for i in range(16):
                low, high = integer(x, start + i, dim, inverse), integer(x, start + i + 16, dim, inverse)
                set_i8(target + i * gap, (low + 8) | (high + 8) << 4)

    @device
    def write_key(keys, at, x, dim):
        for start in range(0, dim, 32):
            block, one = keys + start // 32 * ((payload + 2) * PAGE), unit(x, start, dim)
            set_f16(block + 2 * at, one)
            inverse = np.float32(1) / one if one != np.float32(0) else np.float32(0)
            put_block(block + 2 * PAGE + at, PAGE, x, start, dim, inverse)

    @device
    def write_value(row, x, dim):
        scales = row + (dim + 31) // 32 * payload
        for start in range(0, dim, 32):
            one = unit(x, start, dim)
            set_f16(scales + start // 32 * 2, one)
            inverse = np.float32(1) / one if one != np.float32(0) else np.float32(0)
            put_block(row + start // 32 * payload, 1, x, start, dim, inverse)

    return KvLayout(page, step, True, reads(f32x8), reads(wide), write_key, write_value)


KV_LAYOUTS = {
    "f16": floats(f16_loader, store_f16, set_f16, 2),
    "f32": floats(loader, store_f32, set_f32, 4),
    "bf16": floats(bf16_loader, store_bf16, set_bf16, 2),
    "q8_0": blocks(8),
    "q4_0": blocks(4),
}


# ---- writing ------------------------------------------------------------------------------------------------


def write_keys(layout: KvLayout) -> Any:
    page_bytes, put = layout.page, layout.write_key

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, positions, sequences, tables, tables_row, out, heads, dim):
        end = first(i64(count), thread + 1, threads)
        for row in range(first(i64(count), thread, threads), end):
            position = i32(positions + 4 * row)
            page = i32(tables + i32(sequences + 4 * row) * tables_row + 4 * (position // PAGE))
            for head in range(heads):
                put(
                    out + (page * heads + head) * page_bytes(dim), position % PAGE, x + row * x_row + head * x_head, dim
                )

    return run


def write_values(layout: KvLayout) -> Any:
    page_bytes, step, put = layout.page, layout.step, layout.write_value

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, positions, sequences, tables, tables_row, out, heads, dim):
        end = first(i64(count), thread + 1, threads)
        for row in range(first(i64(count), thread, threads), end):
            position = i32(positions + 4 * row)
            page = i32(tables + i32(sequences + 4 * row) * tables_row + 4 * (position // PAGE))
            for head in range(heads):
                target = out + (page * heads + head) * page_bytes(dim) + position % PAGE * step(dim)
                put(target, x + row * x_row + head * x_head, dim)

    return run


# ---- rotation ------------------------------------------------------------------------------------------------


@routine
def rotate(x, size):
    """A vector of `size` elements, a power of two, times the orthonormal Hadamard matrix, in place."""
    half = 1
    while half < size:
        for start in range(0, size, 2 * half):
            for i in range(start, start + half):
                a, b = f32(x + 4 * i), f32(x + 4 * (i + half))
                set_f32(x + 4 * i, a + b)
                set_f32(x + 4 * (i + half), a - b)
        half *= 2
    factor = np.float32(1) / np.sqrt(np.float32(size))
    for i in range(size):
        set_f32(x + 4 * i, f32(x + 4 * i) * factor)


@kernel(writes=("out",))
def hadamard(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, size):
    """Every `size` elements multiplied by a Hadamard matrix, which spreads an outlier over all of them."""
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        source = x + item // outer * x_row + item % outer * x_head
        target = out + item // outer * out_row + item % outer * out_head
        for i in range(inner):
            set_f32(target + 4 * i, f32(source + 4 * i))
        for i in range(0, inner, size):
            rotate(target + 4 * i, size)


KERNELS = (
    {f"write_keys.{name}": write_keys(layout) for name, layout in KV_LAYOUTS.items()}
    | {f"write_values.{name}": write_values(layout) for name, layout in KV_LAYOUTS.items()}
    | {"hadamard": hadamard}
)
