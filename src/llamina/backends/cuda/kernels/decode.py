"""Attention of one new token of each sequence, from products to partial results: rotation, cache and keys in one kernel.

A program has a token, a key head and a part of the keys. What a token adds to the cache itself is not read from there:
the first part begins with it.
"""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.attention import LOG2E, NONE, PAGE, look
from llamina.backends.cuda.kernels.early import begin


@triton.jit
def turned(source, inside, i, angles, pairs, near, far, DIM: tl.constexpr):
    """Rows of DIM elements i that begin at `source`, rotated; those not `inside` are 0."""
    turns = i < 2 * pairs
    second = tl.where(near == 2, i % 2 == 1, i >= pairs)
    pair = tl.where(near == 2, i // 2, tl.where(second, i - pairs, i))
    cos = tl.load(angles + pair, mask=turns, other=1.0)[None, :]
    sin = tl.load(angles + pairs + pair, mask=turns, other=0.0)[None, :]
    there = inside[:, None] & (i < DIM)[None, :]
    a = tl.load(source[:, None] + i[None, :], mask=there, other=0.0)
    other = (i + tl.where(second, -far, far))[None, :]
    b = tl.load(source[:, None] + other, mask=there & turns[None, :], other=0.0)
    return tl.where(turns[None, :], tl.where(second[None, :], b * sin + a * cos, a * cos - b * sin), a)


@triton.jit
def decode(q, q_row, q_head, k, k_row, k_head, v, v_row, v_head, angles, pairs, near, far, keys, values, tables,
           tables_row, positions, sequences, count, out, out_row, out_head, partials, behind, scale,
           KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, GROUP: tl.constexpr,
           ROWS: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
           EARLY: tl.constexpr):  # fmt: skip
    """As `attention.attend`, with keys and queries that are still to be rotated; grid (tokens, key heads, splits)."""
    begin(EARLY)
    row, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    if row >= tl.load(count):
        return
    last = tl.load(positions + row)  # its own, which is the one after the last in the cache
    table = tables + tl.load(sequences + row) * tables_row
    r = tl.arange(0, ROWS)
    d, dv = tl.arange(0, KEY), tl.arange(0, VALUE)
    alive, head = r < GROUP, kv_head * GROUP + r
    turns = angles + row * 2 * pairs
    query = turned(q + row * q_row + head * q_head, alive, d, turns, pairs, near, far, KEY_DIM)
    query = query.to(keys.dtype.element_ty)
    top = tl.full([ROWS], NONE, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, VALUE], tl.float32)
    if split == 0:
        one = tl.arange(0, 1)
        own = turned(k + row * k_row + kv_head * k_head + one, one == 0, d, turns, pairs, near, far, KEY_DIM)
        own = own.to(keys.dtype.element_ty)
        value = tl.load(v + row * v_row + kv_head * v_head + dv, mask=dv < VALUE_DIM, other=0.0)
        value = value.to(values.dtype.element_ty)
        line = (tl.load(table + last // PAGE).to(tl.int64) * KV_HEADS + kv_head) * PAGE + last % PAGE
        tl.store(keys + line * KEY_DIM + one[:, None] + d[None, :], own, mask=(one == 0)[:, None] & (d < KEY_DIM)[None, :])
        tl.store(values + line * VALUE_DIM + dv, value, mask=dv < VALUE_DIM)
        top = tl.sum(query.to(tl.float32) * own.to(tl.float32), 1) * (scale * LOG2E)
        total += 1.0
        result += value.to(tl.float32)[None, :]
    low = 0
    if behind is not None:
        low = tl.maximum(low, last - behind + 1) // BLOCK
    blocks = (last + BLOCK - 1) // BLOCK - low
    each = (blocks + SPLITS - 1) // SPLITS
    stop = tl.minimum(blocks, (split + 1) * each)
    position = tl.full([ROWS], 0, tl.int32) + last
    for b in range(split * each, stop):
        top, total, result = look(
            b, low, last - 1, table, keys, values, query, query, head, position, r, alive, None, None, 0, 0, kv_head,
            behind, None, None, 1, scale, None, top, total, result, KV_HEADS, KEY_DIM, VALUE_DIM, VALUE_DIM, KEY, 0,
            VALUE, BLOCK, True,
        )  # fmt: skip
    inside = alive[:, None] & (dv < VALUE_DIM)[None, :]
    if SPLITS == 1:
        target = out + row * out_row + head * out_head
        tl.store(target[:, None] + dv[None, :], result / total[:, None], mask=inside)
    else:
        target = partials + ((row * KV_HEADS * GROUP + head) * SPLITS + split) * (VALUE_DIM + 2)
        tl.store(target[:, None] + dv[None, :], result, mask=inside)
        tl.store(target + VALUE_DIM, top, mask=alive)
        tl.store(target + VALUE_DIM + 1, total, mask=alive)
