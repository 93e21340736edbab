"""What adapters add to the products of a matrix, in place, for the rows of requests that use them.

One adapter is added after the other, eight ranks at a time, each by one fused multiply-add: a row's bits depend on
nothing but the row.
"""

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, f64, i32, i64, stack_of
from llamina.backends.cpu.kernels.vector.simd import (
    fma,
    load_f32,
    load_f32_part,
    row_sums_f32,
    splat_f32,
    store_f32,
    store_f32_part,
    zero_f32,
)

eight = stack_of(32)


@device
def down(a, x, k):
    """Eight rows of a, each padded to whole vectors, times x."""
    step = 4 * ((k + 7) // 8 * 8)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero_f32()
    for i in range(0, k, 8):
        v = load_f32(x + 4 * i) if k - i >= 8 else load_f32_part(x + 4 * i, k - i)
        p = a + 4 * i
        s0 = fma(load_f32(p), v, s0)
        s1 = fma(load_f32(p + step), v, s1)
        s2 = fma(load_f32(p + 2 * step), v, s2)
        s3 = fma(load_f32(p + 3 * step), v, s3)
        s4 = fma(load_f32(p + 4 * step), v, s4)
        s5 = fma(load_f32(p + 5 * step), v, s5)
        s6 = fma(load_f32(p + 6 * step), v, s6)
        s7 = fma(load_f32(p + 7 * step), v, s7)
    return row_sums_f32(s0, s1, s2, s3, s4, s5, s6, s7)


@device
def up(b, t, out, low, high, width):
    """Outputs [low, high) plus the eight factors at t times eight rows of b, one after the other."""
    step = 4 * ((width + 7) // 8 * 8)
    for o in range(low, high, 8):
        whole = high - o >= 8
        y = load_f32(out + 4 * o) if whole else load_f32_part(out + 4 * o, high - o)
        for r in range(8):
            y = fma(load_f32(b + r * step + 4 * o), splat_f32(f32(t + 4 * r)), y)
        if whole:
            store_f32(out + 4 * o, y)
        else:
            store_f32_part(out + 4 * o, y, high - o)


@device
def part_of(items, width, thread, threads):
    """Items and outputs of a part: some items whole, or a part of the outputs of every item where they are few."""
    if items >= threads:
        return first(items, thread, threads), first(items, thread + 1, threads), 0, width
    eights = (width + 7) // 8
    return 0, items, 8 * first(eights, thread, threads), min(8 * first(eights, thread + 1, threads), width)


@kernel(writes=("out",))
def adapt(
    thread, threads, count, rows, sequences, positions, starts, slots, scales, since, table,
    x, x_row, x_head, ids, ids_row, out, out_row, out_head, outer, inner, k,
):  # fmt: skip
    """`rows` are the tokens of the outputs (0: row and token are the same); `ids` are experts (0: there are none)."""
    t = eight()
    begin, end, low, high = part_of(i64(count) * outer, inner, thread, threads)
    wide_k, wide_out = (k + 7) // 8 * 8, (inner + 7) // 8 * 8
    for item in range(begin, end):
        row, head = item // outer, item % outer
        token = i32(rows + 4 * row) if rows else row
        sequence = i32(sequences + 4 * token)
        for i in range(i32(starts + 4 * sequence), i32(starts + 4 * sequence + 4)):
            entry = table + 32 * i32(slots + 4 * i)
            rank = i64(entry + 16)
            if rank and i32(positions + 4 * token) >= i32(since + 4 * i):
                expert = i32(ids + row * ids_row + 4 * head) if ids else 0
                a, b = i64(entry) + expert * 4 * rank * wide_k, i64(entry + 8) + expert * 4 * rank * wide_out
                scale = splat_f32(np.float32(f64(entry + 24) * np.float64(f32(scales + 4 * i))))
                source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
                for r in range(0, rank, 8):
                    store_f32(t, down(a + 4 * r * wide_k, source, k) * scale)
                    up(b + 4 * r * wide_out, t, target, low, high, inner)


@kernel(writes=("out",))
def adapt_embed(
    thread, threads, count, sequences, positions, starts, slots, scales, since, table, ids, out, out_row, inner
):  # fmt: skip
    """The same for rows of an embedding table: a's row of the token takes the place of a product."""
    t = eight()
    begin, end, low, high = part_of(i64(count), inner, thread, threads)
    wide_out = (inner + 7) // 8 * 8
    for row in range(begin, end):
        sequence = i32(sequences + 4 * row)
        for i in range(i32(starts + 4 * sequence), i32(starts + 4 * sequence + 4)):
            entry = table + 32 * i32(slots + 4 * i)
            rank = i64(entry + 16)
            if rank and i32(positions + 4 * row) >= i32(since + 4 * i):
                a = i64(entry) + 4 * rank * i32(ids + 4 * row)
                scale = splat_f32(np.float32(f64(entry + 24) * np.float64(f32(scales + 4 * i))))
                for r in range(0, rank, 8):
                    store_f32(t, load_f32(a + 4 * r) * scale)
                    up(i64(entry + 8) + 4 * r * wide_out, t, out + row * out_row, low, high, inner)


KERNELS = {"adapt": adapt, "adapt_embed": adapt_embed}
