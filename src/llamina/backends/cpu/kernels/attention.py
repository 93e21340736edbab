"""Attention over pages with online softmax. A task is one token and some heads that share a key head.

Pages are visited in the order of positions and cut at absolute positions, so a token's result depends on nothing but
its own past. Stores are [page, head, PAGE, dim rounded up to 8], padded with zeros.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.memory import f32, i32, i64, set_f32, stack_of
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    f32x8,
    fill_of,
    first_f32,
    fma,
    hmax_f32,
    hsum_f32,
    iota_i32,
    load_f16,
    load_f32,
    load_f32_part,
    max_f32,
    row_sums_f32,
    splat_f32,
    splat_i32,
    store_f16,
    store_f32,
    store_f32_part,
    within,
    zero_f32,
)
from llamina.backends.cpu.kernels.work import exp8, first, tanh8
from llamina.ops.batch import PAGE

MOST_HEADS = 64  # of one task
CELL = 4 * (PAGE + 2)  # per head: the page's weights, the running maximum, the running sum
scratch = stack_of(MOST_HEADS * CELL)
MINUS_INF = fill_of(f32x8, float("-inf"))
assert PAGE == 16


def store_kernel(store: Any, size: int) -> Any:
    """This step's keys or values into their pages."""

    @kernel
    def run(thread, threads, count, x, x_row, x_head, positions, sequences, tables, tables_row, out, heads, dim):
        padded = (dim + 7) & ~7
        end = first(i64(count), thread + 1, threads)
        for row in range(first(i64(count), thread, threads), end):
            position = i32(positions + 4 * row)
            page = i32(tables + i32(sequences + 4 * row) * tables_row + 4 * (position // PAGE))
            for head in range(heads):
                source = x + row * x_row + head * x_head
                target = out + ((page * heads + head) * PAGE + position % PAGE) * padded * size
                whole = dim & ~7
                for i in range(0, whole, 8):
                    store(target + i * size, load_f32(source + 4 * i))
                if whole < dim:
                    store(target + whole * size, load_f32_part(source + 4 * whole, dim - whole))

    return run


@device
def q_part(q, i, dim):
    return load_f32(q + 4 * i) if i + 8 <= dim else load_f32_part(q + 4 * i, dim - i)


def scores_of(load: Any, size: int) -> Any:
    @device
    def eight_scores(q, keys, dim):
        """q · each of 8 consecutive keys."""
        step = ((dim + 7) & ~7) * size
        a = b = c = d = e = f = g = h = zero_f32()
        for i in range(0, dim, 8):
            x, at = q_part(q, i, dim), keys + i * size
            a = fma(load(at), x, a)
            b = fma(load(at + step), x, b)
            c = fma(load(at + 2 * step), x, c)
            d = fma(load(at + 3 * step), x, d)
            e = fma(load(at + 4 * step), x, e)
            f = fma(load(at + 5 * step), x, f)
            g = fma(load(at + 6 * step), x, g)
            h = fma(load(at + 7 * step), x, h)
        return row_sums_f32(a, b, c, d, e, f, g, h)

    return eight_scores


@device
def shape_scores(s, at, position, lowest, scale, cap, slope):
    """Scale, cap and bias 8 scores of positions at, at+1, …; those out of sight become -inf."""
    s = s * splat_f32(scale)
    if cap > np.float32(0):
        s = tanh8(s / splat_f32(cap)) * splat_f32(cap)
    where = iota_i32() + splat_i32(np.int32(at))
    s = fma(splat_f32(slope), cvt_f32(where) - splat_f32(np.float32(position)), s)
    return within(where, splat_i32(np.int32(lowest)), splat_i32(np.int32(position)), s, MINUS_INF())


def add_values(load: Any, size: int) -> Any:
    @device
    def run(target, values, step, dim, weights, low, high, shrink):
        """target ← target × shrink + Σ weight × value over the page's visible positions."""
        for i in range(0, dim, 8):
            total = q_part(target, i, dim) * shrink
            for j in range(low, high):
                total = fma(splat_f32(f32(weights + 4 * j)), load(values + j * step + i * size), total)
            if i + 8 <= dim:
                store_f32(target + 4 * i, total)
            else:
                store_f32_part(target + 4 * i, total, dim - i)

    return run


def attend_kernel(load: Any, size: int) -> Any:
    eight_scores, accumulate = scores_of(load, size), add_values(load, size)

    @device
    def one_head(
        q, keys, values, value_step, target, cell, at, position, lowest, key_dim, value_dim, scale, cap, slope
    ):
        """Take a page into the running softmax of one head."""
        step = ((key_dim + 7) & ~7) * size
        s0 = shape_scores(eight_scores(q, keys, key_dim), at, position, lowest, scale, cap, slope)
        s1 = shape_scores(eight_scores(q, keys + 8 * step, key_dim), at + 8, position, lowest, scale, cap, slope)
        before = f32(cell + 4 * PAGE)
        top = max(before, hmax_f32(max_f32(s0, s1)))
        shrink = exp8(splat_f32(before - top))
        p0, p1 = exp8(s0 - splat_f32(top)), exp8(s1 - splat_f32(top))
        store_f32(cell, p0)
        store_f32(cell + 32, p1)
        set_f32(cell + 4 * PAGE, top)
        set_f32(cell + 4 * PAGE + 4, f32(cell + 4 * PAGE + 4) * first_f32(shrink) + hsum_f32(p0 + p1))
        low, high = max(lowest - at, 0), min(position - at + 1, PAGE)
        accumulate(target, values, value_step * size, value_dim, cell, low, high, shrink)

    @kernel
    def run(
        thread, threads, count, q, q_row, q_head, keys, values, positions, sequences, tables, tables_row,
        out, out_row, out_head, heads, kv_heads, key_dim, value_dim, value_step, window, slopes, sinks,
        scale: float, cap: float,
    ):  # fmt: skip
        group = heads // kv_heads
        together = min(group, MOST_HEADS)
        if i64(count) * kv_heads < 4 * threads:
            together = 1  # few tokens: spread the heads over the threads
        parts = (group + together - 1) // together
        key_page, value_page = PAGE * ((key_dim + 7) & ~7) * size, PAGE * value_step * size
        cells = scratch()
        item = thread
        while item < i64(count) * kv_heads * parts:
            row, kv_head, part = item // (kv_heads * parts), item // parts % kv_heads, item % parts
            first_head = kv_head * group + part * together
            n_heads = min(together, group - part * together)
            position = i32(positions + 4 * row)
            lowest = max(position - window + 1, 0) if window else 0
            table = tables + i32(sequences + 4 * row) * tables_row
            for h in range(n_heads):
                target = out + row * out_row + (first_head + h) * out_head
                for i in range(value_dim):
                    set_f32(target + 4 * i, np.float32(0))
                sink = f32(sinks + 4 * (first_head + h)) if sinks else np.float32(-np.inf)
                set_f32(cells + h * CELL + 4 * PAGE, sink)
                set_f32(cells + h * CELL + 4 * PAGE + 4, np.float32(1) if sinks else np.float32(0))
            for p in range(lowest // PAGE, position // PAGE + 1):
                page = i32(table + 4 * p) * kv_heads + kv_head
                for h in range(n_heads):
                    head = first_head + h
                    one_head(
                        q + row * q_row + head * q_head,
                        keys + page * key_page,
                        values + page * value_page,
                        value_step,
                        out + row * out_row + head * out_head,
                        cells + h * CELL,
                        p * PAGE,
                        position,
                        lowest,
                        key_dim,
                        value_dim,
                        np.float32(scale),
                        np.float32(cap),
                        f32(slopes + 4 * head),
                    )
            for h in range(n_heads):
                target = out + row * out_row + (first_head + h) * out_head
                total = f32(cells + h * CELL + 4 * PAGE + 4)
                for i in range(value_dim):
                    set_f32(target + 4 * i, f32(target + 4 * i) / total)
            item += threads

    return run


KERNELS = {
    "keep.f16": store_kernel(store_f16, 2),
    "keep.f32": store_kernel(store_f32, 4),
    "attend.f16": attend_kernel(load_f16, 2),
    "attend.f32": attend_kernel(load_f32, 4),
}
