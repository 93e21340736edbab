"""Attention over pages with online softmax. A task is a few tokens of one sequence and heads that share a key head.

Pages are visited in the order of positions and cut at absolute positions, and every (token, head) is computed by itself
in the same order of operations, so its result depends on nothing but its own past. How keys and values lie in a page is
known to kept.py alone. Latent keys serve as their own values.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.kept import KEPT, RUN, Kept, part
from llamina.backends.cpu.kernels.memory import f32, i32, i64, set_f32, set_i64, stack_of, u32
from llamina.backends.cpu.kernels.simd import (
    cvt_f32,
    f32x8,
    fill_of,
    first_f32,
    fma,
    hmax_f32,
    hsum_f32,
    iota_i32,
    load_f32,
    max_f32,
    splat_f32,
    splat_i32,
    store_f32,
    store_f32_part,
    within,
    zero_f32,
)
from llamina.backends.cpu.kernels.work import exp8, tanh8
from llamina.ops.batch import PAGE

MOST_ROWS = 64  # (token, head) pairs of one task
TOKENS = 8  # of one task, at the most
CELL = 128  # a row's place in the scratch: the page's 16 weights, then what the names below say
TOP, SUM, SLOPE, SHRINK, QUERY, OUT, POSITION, LOWEST, SEEN, HIGHEST = 64, 68, 72, 76, 80, 88, 96, 104, 112, 120
scratch = stack_of(MOST_ROWS * CELL)
MINUS_INF = fill_of(f32x8, float("-inf"))


# ---- one page -----------------------------------------------------------------------------------------------


@device
def shape_scores(s, at, position, lowest, highest, scale, cap, slope):
    """Scale, cap and bias 8 scores of positions at, at+1, …; those out of sight become -inf."""
    s = s * splat_f32(scale)
    if cap > np.float32(0):
        s = tanh8(s / splat_f32(cap)) * splat_f32(cap)
    where = iota_i32() + splat_i32(np.int32(at))
    ahead = cvt_f32(where) - splat_f32(np.float32(position))
    s = fma(splat_f32(slope), zero_f32() - max_f32(ahead, zero_f32() - ahead), s)
    return within(where, splat_i32(np.int32(lowest)), splat_i32(np.int32(highest)), s, MINUS_INF())


@routine
def take_scores(cell, at, scale, cap):
    """A page's 16 scores, which stand in the cell, into the running softmax of their row: they become weights."""
    position, lowest, highest = i64(cell + POSITION), i64(cell + LOWEST), i64(cell + HIGHEST)
    if at > highest or at + PAGE <= lowest:  # another row of the task sees this page, this one does not
        store_f32(cell, zero_f32())
        store_f32(cell + 32, zero_f32())
        set_f32(cell + SHRINK, np.float32(1))
        return
    slope = f32(cell + SLOPE)
    s0 = shape_scores(load_f32(cell), at, position, lowest, highest, scale, cap, slope)
    s1 = shape_scores(load_f32(cell + 32), at + 8, position, lowest, highest, scale, cap, slope)
    before = f32(cell + TOP)
    top = max(before, hmax_f32(max_f32(s0, s1)))
    if top == np.float32(-np.inf):  # nothing of it was chosen, nor of any page before
        store_f32(cell, zero_f32())
        store_f32(cell + 32, zero_f32())
        set_f32(cell + SHRINK, np.float32(1))
        return
    shrink = first_f32(exp8(splat_f32(before - top)))
    p0, p1 = exp8(s0 - splat_f32(top)), exp8(s1 - splat_f32(top))
    store_f32(cell, p0)
    store_f32(cell + 32, p1)
    set_f32(cell + TOP, top)
    set_f32(cell + SHRINK, shrink)
    set_f32(cell + SUM, f32(cell + SUM) * shrink + hsum_f32(p0 + p1))


def score_rows(kept: Kept) -> Any:
    key, scale, scaled = kept.key, kept.scale, kept.scaled

    @routine
    def run(c0, c1, c2, c3, keys, dim):
        """Four rows' queries times a page of keys: scores into their cells."""
        q0, q1, q2, q3 = i64(c0 + QUERY), i64(c1 + QUERY), i64(c2 + QUERY), i64(c3 + QUERY)
        a0 = a1 = b0 = b1 = d0 = d1 = e0 = e1 = zero_f32()
        start = 0
        while start < dim:
            n = min(RUN, dim - start) if scaled else dim
            s0, s1 = scale(keys, start, 0), scale(keys, start, 8)
            for i in range(n):
                k0, k1 = key(keys, start, i, 0), key(keys, start, i, 8)
                if scaled:
                    k0, k1 = k0 * s0, k1 * s1
                x = splat_f32(f32(q0 + 4 * i))
                a0, a1 = fma(k0, x, a0), fma(k1, x, a1)
                x = splat_f32(f32(q1 + 4 * i))
                b0, b1 = fma(k0, x, b0), fma(k1, x, b1)
                x = splat_f32(f32(q2 + 4 * i))
                d0, d1 = fma(k0, x, d0), fma(k1, x, d1)
                x = splat_f32(f32(q3 + 4 * i))
                e0, e1 = fma(k0, x, e0), fma(k1, x, e1)
            q0, q1, q2, q3 = q0 + 4 * n, q1 + 4 * n, q2 + 4 * n, q3 + 4 * n
            start += n
        store_f32(c0, a0)
        store_f32(c0 + 32, a1)
        store_f32(c1, b0)
        store_f32(c1 + 32, b1)
        store_f32(c2, d0)
        store_f32(c2 + 32, d1)
        store_f32(c3, e0)
        store_f32(c3 + 32, e1)

    return run


@device
def put_part(x, i, dim, value):
    if i + 8 <= dim:
        store_f32(x + 4 * i, value)
    else:
        store_f32_part(x + 4 * i, value, dim - i)


def weigh_rows(value: Any) -> Any:
    @routine
    def run(c0, c1, c2, c3, values, step, dim, low, high):
        """out ← out × shrink + Σ weight × value over the page's positions [low, high), for four rows."""
        o0, o1, o2, o3 = i64(c0 + OUT), i64(c1 + OUT), i64(c2 + OUT), i64(c3 + OUT)
        s0, s1 = splat_f32(f32(c0 + SHRINK)), splat_f32(f32(c1 + SHRINK))
        s2, s3 = splat_f32(f32(c2 + SHRINK)), splat_f32(f32(c3 + SHRINK))
        i = 0
        while i + 16 <= dim:
            a0, a1 = load_f32(o0 + 4 * i) * s0, load_f32(o0 + 4 * i + 32) * s0
            b0, b1 = load_f32(o1 + 4 * i) * s1, load_f32(o1 + 4 * i + 32) * s1
            d0, d1 = load_f32(o2 + 4 * i) * s2, load_f32(o2 + 4 * i + 32) * s2
            e0, e1 = load_f32(o3 + 4 * i) * s3, load_f32(o3 + 4 * i + 32) * s3
            for j in range(low, high):
                v0, v1 = value(values + j * step, i, dim), value(values + j * step, i + 8, dim)
                w = splat_f32(f32(c0 + 4 * j))
                a0, a1 = fma(w, v0, a0), fma(w, v1, a1)
                w = splat_f32(f32(c1 + 4 * j))
                b0, b1 = fma(w, v0, b0), fma(w, v1, b1)
                w = splat_f32(f32(c2 + 4 * j))
                d0, d1 = fma(w, v0, d0), fma(w, v1, d1)
                w = splat_f32(f32(c3 + 4 * j))
                e0, e1 = fma(w, v0, e0), fma(w, v1, e1)
            store_f32(o0 + 4 * i, a0)
            store_f32(o0 + 4 * i + 32, a1)
            store_f32(o1 + 4 * i, b0)
            store_f32(o1 + 4 * i + 32, b1)
            store_f32(o2 + 4 * i, d0)
            store_f32(o2 + 4 * i + 32, d1)
            store_f32(o3 + 4 * i, e0)
            store_f32(o3 + 4 * i + 32, e1)
            i += 16
        while i < dim:
            a, b, c, d = part(o0, i, dim) * s0, part(o1, i, dim) * s1, part(o2, i, dim) * s2, part(o3, i, dim) * s3
            for j in range(low, high):
                v = value(values + j * step, i, dim)
                a = fma(splat_f32(f32(c0 + 4 * j)), v, a)
                b = fma(splat_f32(f32(c1 + 4 * j)), v, b)
                c = fma(splat_f32(f32(c2 + 4 * j)), v, c)
                d = fma(splat_f32(f32(c3 + 4 * j)), v, d)
            put_part(o0, i, dim, a)
            put_part(o1, i, dim, b)
            put_part(o2, i, dim, c)
            put_part(o3, i, dim, d)
            i += 8

    return run


# ---- a task -------------------------------------------------------------------------------------------------


@device
def lowest_seen(position, window, chunk):
    """The first position that a token sees."""
    lowest = max(position - window + 1, 0) if window else 0
    return max(lowest, position // chunk * chunk) if chunk else lowest


@device
def chosen(cell, block):
    """Whether a row's bits have a block."""
    return u32(i64(cell + SEEN) + 4 * (block >> 5)) >> (block & 31) & 1


@routine
def hide(cell, at, block):
    """The scores of what was not chosen."""
    for i in range(PAGE):
        if not chosen(cell, (at + i) // block):
            set_f32(cell + 4 * i, np.float32(-np.inf))


@routine
def unseen(cells, rows, at, block):
    """Whether no row has chosen anything of a page."""
    for r in range(rows):
        for b in range(at // block, (at + PAGE - 1) // block + 1):
            if chosen(cells + r * CELL, b):
                return False
    return True


@routine
def begin_row(cell, query, out, value_dim, position, highest, window, chunk, slope, sink, has_sink, seen):
    set_i64(cell + QUERY, query)
    set_i64(cell + OUT, out)
    set_i64(cell + POSITION, position)
    set_i64(cell + LOWEST, lowest_seen(position, window, chunk))
    set_i64(cell + HIGHEST, highest)
    set_i64(cell + SEEN, seen)
    set_f32(cell + SLOPE, slope)
    set_f32(cell + TOP, sink if has_sink else np.float32(-np.inf))
    set_f32(cell + SUM, np.float32(1) if has_sink else np.float32(0))
    for i in range(0, value_dim, 8):
        put_part(out, i, value_dim, zero_f32())


@routine
def end_row(cell, value_dim):
    out, total = i64(cell + OUT), splat_f32(f32(cell + SUM))
    for i in range(0, value_dim, 8):
        put_part(out, i, value_dim, part(out, i, value_dim) / total)


def read_values(kept: Kept) -> Any:
    key, scale, scaled = kept.key, kept.scale, kept.scaled

    @routine
    def run(keys, target, dim):
        """A latent page's values: its keys' first elements, a row per position, as float32."""
        for i in range(dim):
            start = i & ~(RUN - 1)
            for half in range(0, PAGE, 8):
                k = key(keys, start, i - start, half)
                store_f32(target, k * scale(keys, start, half) if scaled else k)
                for j in range(8):
                    set_f32(target + 64 + 4 * ((half + j) * dim + i), f32(target + 4 * j))

    return run


@device
def plain_value(row, i, dim):
    return load_f32(row + 4 * i)


@routine
def heads_together(group, kv_heads, spans, threads):
    """How many heads of a group a task takes: all, unless there would be fewer tasks than threads."""
    if spans * kv_heads < threads:
        return max(1, min(group * kv_heads * spans // threads, MOST_ROWS))
    return min(group, MOST_ROWS)


def attend_kernel(kept: Kept, latent: bool) -> Any:
    score, weigh, read_latent = score_rows(kept), weigh_rows(plain_value if latent else kept.value), read_values(kept)
    page_bytes, step_bytes = kept.page, kept.step

    @routine
    def one_page(cells, rows, keys, values, step, key_dim, value_dim, at, low, high, block, scale, cap):
        for r in range(0, rows, 4):
            c0, c1 = cells + r * CELL, cells + min(r + 1, rows - 1) * CELL
            c2, c3 = cells + min(r + 2, rows - 1) * CELL, cells + min(r + 3, rows - 1) * CELL
            score(c0, c1, c2, c3, keys, key_dim)
            for i in range(r, min(r + 4, rows)):
                if i64(cells + SEEN):
                    hide(cells + i * CELL, at, block)
                take_scores(cells + i * CELL, at, scale, cap)
            weigh(c0, c1, c2, c3, values, step, value_dim, low, high)

    @routine
    def begin_rows(
        cells, begin, tokens, head_0, n_heads, q, q_row, q_head, out, out_row, out_head, value_dim, positions, last,
        ahead, window, chunk, slopes, sinks, seen, seen_row,
    ):  # fmt: skip
        for row in range(begin, begin + tokens):
            position = i32(positions + 4 * row)
            for head in range(head_0, head_0 + n_heads):
                begin_row(
                    cells, q + row * q_row + head * q_head, out + row * out_row + head * out_head, value_dim,
                    position, min(position + ahead, last), window, chunk, f32(slopes + 4 * head),
                    f32(sinks + 4 * head) if sinks else np.float32(0), sinks != 0, seen + row * seen_row,
                )  # fmt: skip
                cells += CELL

    @routine
    def all_pages(
        cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, lowest, late, pad, block, scale, cap
    ):
        """Through the pages that any of the rows sees, then to the end of each row."""
        key_page, value_page = page_bytes(key_dim), page_bytes(value_dim)
        step = 4 * value_dim if latent else step_bytes(value_dim)
        for p in range(lowest >> 4, (late >> 4) + 1):
            page, at = i32(table + 4 * p) * kv_heads + kv_head, p * PAGE
            if i64(cells + SEEN) and unseen(cells, rows, at, block):
                continue
            low, high = max(lowest - at, 0), min(late - at + 1, PAGE)
            kept = values + page * value_page
            if latent:
                read_latent(keys + page * key_page, pad, value_dim)
                kept = pad + 64
            one_page(
                cells, rows, keys + page * key_page, kept, step, key_dim, value_dim, at, low, high, block, scale, cap
            )
        for r in range(rows):
            end_row(cells + r * CELL, value_dim)

    @kernel
    def run(
        thread, threads, spans, starts, q, q_row, q_head, keys, values, positions, sequences, tables, tables_row,
        out, out_row, out_head, heads, kv_heads, key_dim, value_dim, window, chunk, ahead, slopes, sinks, scratch_pad,
        scratch_size, seen, seen_row, seen_head, block, worker, scale: float, cap: float,
    ):  # fmt: skip
        group = heads // kv_heads
        together = heads_together(group, kv_heads, i64(spans), threads)
        n_tokens = max(1, min(TOKENS, MOST_ROWS // together))
        cells, pad = scratch(), scratch_pad + worker * scratch_size
        turn = 0
        for s in range(i64(spans)):
            begin, end, table = i32(starts + 4 * s), i32(starts + 4 * s + 4), tables + s * tables_row
            last = i32(positions + 4 * (end - 1))
            while begin < end:
                tokens = min(n_tokens, end - begin)
                early, late = i32(positions + 4 * begin), min(i32(positions + 4 * (begin + tokens - 1)) + ahead, last)
                lowest = lowest_seen(early, window, chunk)
                head_0 = 0
                while head_0 < heads:
                    kv_head = head_0 // group
                    n_heads = min(together, (kv_head + 1) * group - head_0)
                    if turn == thread:
                        begin_rows(
                            cells, begin, tokens, head_0, n_heads, q, q_row, q_head, out, out_row, out_head, value_dim,
                            positions, last, ahead, window, chunk, slopes, sinks, seen + kv_head * seen_head, seen_row,
                        )  # fmt: skip
                        all_pages(
                            cells, tokens * n_heads, keys, values, table, kv_heads, kv_head, key_dim, value_dim,
                            lowest, late, pad, block, np.float32(scale), np.float32(cap),
                        )  # fmt: skip
                    turn = turn + 1 if turn + 1 < threads else 0
                    head_0 += n_heads
                begin += tokens

    return run


KERNELS = {f"attend.{name}": attend_kernel(kept, False) for name, kept in KEPT.items()} | {
    f"attend_latent.{name}": attend_kernel(kept, True) for name, kept in KEPT.items()
}
