"""Choosing what a token attends to: its scores of all layout keys, and bits for the blocks with the best of them."""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.attention.kv_cache import KV_LAYOUTS, RUN, KvLayout
from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32, set_i32, set_i64, stack_of, u32
from llamina.backends.cpu.kernels.vector.simd import (
    f32x8,
    fill_of,
    fma,
    max_f32,
    splat_f32,
    store_f32,
    zero_f32,
)

counts = stack_of(256 * 8)
ZERO = fill_of(f32x8, 0.0)


@device
def rank(score):
    """A float's bits as a number that grows with it."""
    bits = u32(score)
    return bits ^ 0xFFFFFFFF if bits & 0x80000000 else bits | 0x80000000


@routine
def limit(scores, n, top):
    """The rank of the `top`-th best of n scores, and how many of that rank are among them: a byte at a time."""
    tally = counts()
    known, mask, wanted = 0, 0, top
    for shift in range(24, -8, -8):
        for i in range(256):
            set_i64(tally + 8 * i, 0)
        for i in range(n):
            value = rank(scores + 4 * i)
            if value & mask == known:
                at = tally + 8 * ((value >> shift) & 255)
                set_i64(at, i64(at) + 1)
        byte = 255
        while wanted > i64(tally + 8 * byte):
            wanted -= i64(tally + 8 * byte)
            byte -= 1
        known, mask = known | byte << shift, mask | 255 << shift
    return known, wanted


@device
def mark(bits, block):
    word = bits + 4 * (block >> 5)
    set_i32(word, i32(word) | 1 << (block & 31))


@routine
def mark_best(scores, n, top, bits):
    """Of equal ones the earlier are taken."""
    if n <= top:
        for i in range(n):
            mark(bits, i)
        return
    least, equals = limit(scores, n, top)
    for i in range(n):
        value = rank(scores + 4 * i)
        if value > least:
            mark(bits, i)
        elif value == least and equals > 0:
            mark(bits, i)
            equals -= 1


@routine
def score_blocks(scores, n, block, local, whole):
    """Scores of positions become those of blocks, in place; gives their number."""
    if whole:
        for b in range(n // block):
            set_f32(scores + 4 * b, f32(scores + 4 * (b * block + block - 1)))
        return n // block
    blocks = (n + block - 1) // block
    for b in range(blocks):
        best = f32(scores + 4 * b * block)
        for i in range(b * block + 1, min((b + 1) * block, n)):
            best = max(best, f32(scores + 4 * i))
        set_f32(scores + 4 * b, np.float32(np.inf) if b >= blocks - local else best)
    return blocks


def select_kernel(layout: KvLayout) -> Any:
    key, scale, scaled, page_bytes = layout.eight.key, layout.eight.scale, layout.scaled, layout.page

    @device
    def score_page(keys, q, dim):
        a0 = a1 = zero_f32()
        start = 0
        while start < dim:
            n = min(RUN, dim - start) if scaled else dim
            s0, s1 = scale(keys, start, 0), scale(keys, start, 8)
            for i in range(n):
                k0, k1 = key(keys, start, i, 0), key(keys, start, i, 8)
                if scaled:
                    k0, k1 = k0 * s0, k1 * s1
                x = splat_f32(f32(q + 4 * (start + i)))
                a0, a1 = fma(k0, x, a0), fma(k1, x, a1)
            start += n
        return a0, a1

    @routine
    def score_positions(scores, q, q_head, heads, weights, keys, table, dim, position):
        """Of one head, or (with weights) of all together."""
        for p in range((position >> 4) + 1):
            page, at = keys + i32(table + 4 * p) * page_bytes(dim), scores + 64 * p
            s0, s1 = score_page(page, q, dim)
            if weights:
                w = splat_f32(f32(weights))
                s0, s1 = max_f32(s0, ZERO()) * w, max_f32(s1, ZERO()) * w
                for h in range(1, heads):
                    a0, a1 = score_page(page, q + h * q_head, dim)
                    w = splat_f32(f32(weights + 4 * h))
                    s0, s1 = fma(max_f32(a0, ZERO()), w, s0), fma(max_f32(a1, ZERO()), w, s1)
            store_f32(at, s0)
            store_f32(at + 32, s1)

    @kernel(writes=("out", "scratch"))
    def run(
        thread, threads, count, q, q_row, q_head, weights, weights_row, keys, positions, sequences, tables, tables_row,
        out, out_row, out_head, heads, groups, dim, words, top, block, local, whole, scratch, scratch_size, worker,
    ):  # fmt: skip
        scores = scratch + worker * scratch_size
        for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
            position, table = i32(positions + 4 * row), tables + i32(sequences + 4 * row) * tables_row
            for g in range(groups):
                bits = out + row * out_row + g * out_head
                for i in range(words):
                    set_i32(bits + 4 * i, 0)
                score_positions(
                    scores, q + row * q_row + g * q_head, q_head, heads, weights + row * weights_row if weights else 0,
                    keys, table, dim, position,
                )  # fmt: skip
                blocks = score_blocks(scores, position + 1, block, local, whole)
                mark_best(scores, blocks, top, bits)
                if whole and blocks * block <= position:
                    mark(bits, blocks)

    return run


KERNELS = {f"select.{name}": select_kernel(layout) for name, layout in KV_LAYOUTS.items()}
