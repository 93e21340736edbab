"""Attention over the pages of the KV cache. A task is a few tokens of one sequence and heads that share a key head.

Pages are taken in chunks, cut at absolute positions: a chunk's scores, one softmax over them, the weighted sum of its
values. This partial result is merged with those of the chunks before, in the order of positions. So a (token, head) has
the same bits whichever thread computes which of its chunks, and threads share out pages, not tasks. How keys and values
lie in a page is known to kv_cache.py alone. Latent keys serve as their own values.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.attention.kv_cache import KV_LAYOUTS, KvLayout
from llamina.backends.cpu.kernels.attention.many import score_many, unpack_chunk, weigh_many
from llamina.backends.cpu.kernels.attention.rows import (
    AT,
    BIASES,
    CELL,
    ENTRY,
    HIGHEST,
    KEYS,
    LOWEST,
    NEXT,
    OUT,
    PARTIAL,
    PLAIN,
    POSITION,
    QUERY,
    SCORES,
    SCORES_BYTES,
    SEEN,
    SELECTED,
    SLOPE,
    SUM,
    TOP,
    VALUES,
    chunk_pages,
    clear_outputs,
    divide_by_sums,
    merge,
    none_selected,
    partial_size,
    read_values,
    row_cells,
    row_scores,
    score_rows,
    see,
    softmax_rows,
    weigh_rows,
)
from llamina.backends.cpu.kernels.device import device, kernel, routine
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32, set_i64
from llamina.backends.cpu.kernels.walk import fetch_add
from llamina.backends.cpu.layout import CHUNK, MOST_ROWS
from llamina.ops.batch import PAGE

TOKENS = 32  # of one task, at the most
MANY_ROWS = 16  # from so many on, a chunk is made float32 once, instead of by each four of them


@device
def lowest_visible(row, positions, window, chunk, since):
    """The first position that a token sees."""
    if since:
        return i32(since + 4 * row)
    position = i32(positions + 4 * row)
    lowest = max(position - window + 1, 0) if window else 0
    return max(lowest, position // chunk * chunk) if chunk else lowest


@device
def highest_visible(row, positions, ahead, last, until):
    """The last position that a token sees, of those that the sequence has."""
    return i32(until + 4 * row) if until else min(i32(positions + 4 * row) + ahead, last)


@routine
def heads_together(group, kv_heads, spans, threads):
    """How many heads of a group a task takes: all, unless there would be fewer tasks than threads."""
    if spans * kv_heads < threads:
        return max(1, min(group * kv_heads * spans // threads, MOST_ROWS))
    return min(group, MOST_ROWS)


@device
def four_rows(cells, r, rows):
    """Past the last one it is repeated."""
    last = rows - 1
    return (
        cells + r * CELL,
        cells + min(r + 1, last) * CELL,
        cells + min(r + 2, last) * CELL,
        cells + min(r + 3, last) * CELL,
    )


@device
def first_page(chunk, lowest):
    return max(chunk * CHUNK, lowest // PAGE)


@routine
def owner(total, at, thread, threads):
    """Which part, no later than this one, a page belongs to."""
    while first(total, thread, threads) > at:
        thread -= 1
    return thread


def attend_kernel(layout: KvLayout, latent: bool) -> Any:
    score, weigh, read_latent = (
        score_rows(layout),
        weigh_rows(PLAIN if latent else layout),
        read_values(layout),
    )
    page_bytes, step_bytes = layout.page, layout.step
    unpack, plain_step, many = unpack_chunk(layout), PLAIN.step, 1 << 30 if latent else MANY_ROWS

    @routine
    def begin_rows(
        cells, begin, tokens, head_0, n_heads, q, q_row, q_head, out, out_row, out_head, positions, last, ahead, until,
        since, window, chunk, slopes, biases, biases_row, distances, sinks, selected, selected_row, scores,
    ):  # fmt: skip
        for row in range(begin, begin + tokens):
            position = i32(positions + 4 * row)
            for head in range(head_0, head_0 + n_heads):
                set_i64(cells + QUERY, q + row * q_row + head * q_head)
                set_i64(cells + OUT, out + row * out_row + head * out_head)
                set_i64(cells + SCORES, scores)
                set_i64(cells + POSITION, position)
                set_i64(cells + LOWEST, lowest_visible(row, positions, window, chunk, since))
                set_i64(cells + HIGHEST, highest_visible(row, positions, ahead, last, until))
                set_i64(cells + SELECTED, selected + row * selected_row)
                set_f32(cells + SLOPE, f32(slopes + 4 * head))
                set_i64(cells + BIASES, biases + head * biases_row + 4 * (distances - position) if biases else 0)
                set_f32(cells + TOP, f32(sinks + 4 * head) if sinks else np.float32(-np.inf))
                set_f32(cells + SUM, np.float32(1) if sinks else np.float32(0))
                cells += CELL
                scores += SCORES_BYTES

    @routine
    def list_pages(
        cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, first_one, last_one, final, block,
        pages, pad,
    ):  # fmt: skip
        """The pages of a chunk that any of the rows sees."""
        n = 0
        for p in range(first_one, last_one + 1):
            if i64(cells + SELECTED) and none_selected(cells, rows, p * PAGE, block):
                continue
            page, entry = i32(table + 4 * p) * kv_heads + kv_head, pages + ENTRY * n
            # What follows is the next chunk, or the next head, whose page lies behind this one.
            next_page = i32(table + 4 * (p + CHUNK)) * kv_heads + kv_head if p + CHUNK <= final else page + 1
            set_i64(entry + KEYS, keys + page * page_bytes(key_dim))
            set_i64(entry + VALUES, values + page * page_bytes(value_dim))
            set_i64(entry + AT, p * PAGE)
            set_i64(entry + NEXT, keys + next_page * page_bytes(key_dim))
            if latent:
                read_latent(keys + page * page_bytes(key_dim), pad, value_dim)
                set_i64(entry + VALUES, pad)
                pad += 4 * PAGE * value_dim
            n += 1
        return n

    @routine
    def one_chunk(
        cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, chunk, lowest, late, pages, partials,
        pad, block, scale, cap,
    ):  # fmt: skip
        """A chunk's partial results, as if nothing had been before it."""
        step = 4 * value_dim if latent else step_bytes(value_dim)
        last_one = min((chunk + 1) * CHUNK - 1, late // PAGE)
        n = list_pages(
            cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, first_page(chunk, lowest),
            last_one, late // PAGE, block, pages, pad,
        )  # fmt: skip
        for r in range(rows):
            set_i64(cells + r * CELL + PARTIAL, partials + r * partial_size(value_dim))
            set_i64(cells + r * CELL + SEEN, n)
        if rows >= many and n:
            pad = pad + 63 & ~63
            values_pad = pad + 4 * CHUNK * PAGE * key_dim
            unpack(pages, n, pad, values_pad, key_dim, value_dim)
            see(cells, rows, pages, n)
            score_many(cells, rows, n, pad, key_dim)
            softmax_rows(cells, rows, pages, block, scale, cap, value_dim)
            weigh_many(cells, rows, pages, values_pad, plain_step(value_dim), value_dim, lowest, late)
            return
        # Pages lie apart, so the hardware does not prefetch them; we do, a cache line at a time.
        fetch_values = 0 if latent else page_bytes(value_dim) // key_dim
        fetch_keys = page_bytes(key_dim) // value_dim
        for r in range(0, rows, 4):
            c0, c1, c2, c3 = four_rows(cells, r, rows)
            score(c0, c1, c2, c3, pages, n, key_dim, fetch_values if r == 0 else 0)
        softmax_rows(cells, rows, pages, block, scale, cap, value_dim)
        for r in range(0, rows, 4):
            c0, c1, c2, c3 = four_rows(cells, r, rows)
            weigh(c0, c1, c2, c3, pages, n, step, value_dim, lowest, late, fetch_keys if r == 0 else 0)

    @routine
    def all_chunks(
        cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, at, mine, theirs, total, thread,
        threads, lowest, late, pages, shared_partials, partials_size, pad, block, scale, cap,
    ):  # fmt: skip
        """Those of a task's chunks that are ours; of all pages, the task's are those from `at` on."""
        size, begin, end = rows * partial_size(value_dim), lowest // PAGE // CHUNK, late // PAGE // CHUNK + 1
        shift, fits = at - lowest // PAGE, (end - begin) * size + 64 <= partials_size
        if not fits or (mine <= at and shift + first_page(end - 1, lowest) < theirs):  # all of it is ours
            if mine <= at:
                clear_outputs(cells, rows, value_dim)
                for c in range(begin, end):
                    one_chunk(
                        cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, c, lowest, late, pages,
                        pad, pad + size, block, scale, cap,
                    )  # fmt: skip
                    merge(cells, rows, pad, value_dim)
                divide_by_sums(cells, rows, value_dim)
            return
        slot, done = shared_partials + owner(total, at, thread, threads) * partials_size, 0
        for c in range(begin, end):
            if mine <= shift + first_page(c, lowest) < theirs:
                one_chunk(
                    cells, rows, keys, values, table, kv_heads, kv_head, key_dim, value_dim, c, lowest, late, pages,
                    slot + 64 + (c - begin) * size, pad, block, scale, cap,
                )  # fmt: skip
                done += 1
        if done and fetch_add(slot, done) + done == end - begin:  # the last to be done puts it together
            set_i64(slot, 0)
            clear_outputs(cells, rows, value_dim)
            for c in range(end - begin):
                merge(cells, rows, slot + 64 + c * size, value_dim)
            divide_by_sums(cells, rows, value_dim)

    @kernel(writes=("out", "shared_partials", "scratch"))
    def run(
        thread, threads, spans, starts, q, q_row, q_head, keys, values, positions, sequences, tables, tables_row, out,
        out_row, out_head, heads, kv_heads, key_dim, value_dim, window, chunk, ahead, until, since, slopes, biases,
        biases_row, distances, sinks, scratch, scratch_size, shared_partials, partials_size, selected, selected_row,
        selected_head, block, worker,
        scale: float, cap: float,
    ):  # fmt: skip
        group = heads // kv_heads
        together = heads_together(group, kv_heads, i64(spans), threads)
        n_tokens = max(1, min(TOKENS, MOST_ROWS // together))
        cells, scores, pages, pad = row_cells(), row_scores(), chunk_pages(), scratch + worker * scratch_size
        total = 0
        for s in range(i64(spans)):
            begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
            last = i32(positions + 4 * (end - 1))
            while begin < end:
                tokens = min(n_tokens, end - begin)
                late = highest_visible(begin + tokens - 1, positions, ahead, last, until)
                lowest = lowest_visible(begin, positions, window, chunk, since)
                total += (late // PAGE - lowest // PAGE + 1) * kv_heads * ((group + together - 1) // together)
                begin += tokens
        mine, theirs = first(total, thread, threads), first(total, thread + 1, threads)
        at = 0
        for s in range(i64(spans)):
            begin, end, table = i32(starts + 4 * s), i32(starts + 4 * s + 4), tables + s * tables_row
            last = i32(positions + 4 * (end - 1))
            while begin < end and at < theirs:
                tokens = min(n_tokens, end - begin)
                late = highest_visible(begin + tokens - 1, positions, ahead, last, until)
                lowest = lowest_visible(begin, positions, window, chunk, since)
                n_pages, head_0 = late // PAGE - lowest // PAGE + 1, 0
                while head_0 < heads and at < theirs:
                    kv_head = head_0 // group
                    n_heads = min(together, (kv_head + 1) * group - head_0)
                    if at + n_pages > mine:
                        begin_rows(
                            cells, begin, tokens, head_0, n_heads, q, q_row, q_head, out, out_row, out_head, positions,
                            last, ahead, until, since, window, chunk, slopes, biases, biases_row, distances, sinks,
                            selected + kv_head * selected_head, selected_row, scores,
                        )  # fmt: skip
                        all_chunks(
                            cells, tokens * n_heads, keys, values, table, kv_heads, kv_head, key_dim, value_dim, at,
                            mine, theirs, total, thread, threads, lowest, late, pages, shared_partials, partials_size,
                            pad, block, np.float32(scale), np.float32(cap),
                        )  # fmt: skip
                    at += n_pages
                    head_0 += n_heads
                begin += tokens

    return run


KERNELS = {f"attend.{name}": attend_kernel(layout, False) for name, layout in KV_LAYOUTS.items()} | {
    f"attend_latent.{name}": attend_kernel(layout, True) for name, layout in KV_LAYOUTS.items()
}
