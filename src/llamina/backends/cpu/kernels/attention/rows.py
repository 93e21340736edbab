"""The rows of an attention task, a row being a (token, head): scores, softmax, sums of values, merging of chunks.

Four rows at a time share the loads of keys and values. Every row goes through the same operations in the same order
whatever the others are.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.attention.kv_cache import KV_LAYOUTS, RUN, KvLayout, part
from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.math import exp8, exp_of, tanh8
from llamina.backends.cpu.kernels.vector.memory import f32, i64, prefetch, set_f32, set_i64, stack_of, u32
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    Vec,
    cvt_f32,
    f32x8,
    fill_of,
    first_f32,
    fma,
    fma_of,
    hmax_f32,
    hsum_f32,
    iota_i32,
    load_f32,
    loader,
    max_f32,
    op,
    splat_f32,
    splat_i32,
    splat_of,
    store_f32,
    store_f32_part,
    storer,
    within,
    zero_f32,
)
from llamina.backends.cpu.layout import CHUNK, MOST_ROWS, partial_bytes
from llamina.ops.batch import PAGE

CELL = 128  # a row: where it stands, and what it has selected so far
QUERY, OUT, PARTIAL, SCORES, POSITION, LOWEST, HIGHEST, SELECTED, TOP, SUM, SLOPE, BIASES, SEEN = (
    8 * i for i in range(13)
)
ENTRY = 32  # a page of the chunk: its keys, its values, its first position, the keys of the page a chunk later
KEYS, VALUES, AT, NEXT = 0, 8, 16, 24
SCORES_BYTES = CHUNK * PAGE * 4  # a row's scores of a chunk, and then its weights
row_cells, row_scores, chunk_pages = (
    stack_of(MOST_ROWS * CELL),
    stack_of(MOST_ROWS * SCORES_BYTES),
    stack_of(CHUNK * ENTRY),
)
eight = stack_of(32)
MINUS_INF = fill_of(f32x8, float("-inf"))
partial_size = device(partial_bytes)
PLAIN = KV_LAYOUTS["f32"]  # of latent values, once they are read

TOGETHER = 2 * WIDE // PAGE  # pages whose keys two registers hold,
FAR = WIDE % PAGE  # and where in a page the second one's begin
zero, splat, wide_fma, wide_exp = fill_of(wide, 0.0), splat_of(wide, types.float32), fma_of(wide), exp_of(wide)
load_wide, put_wide, wide_minus_inf = loader(wide), storer(wide), fill_of(wide, float("-inf"))
wide_max = op(wide, (wide, wide), lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
half_max = op(f32x8, (wide,), lambda b, x: _half_max(b, x))


def _half_max(b: Any, x: Any) -> Any:
    if WIDE == 8:
        return x
    low, high = (b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, 8), [*range(n, n + 8)])) for n in (0, 8))
    return b.select(b.fcmp_ordered(">", low, high), low, high)


@device
def chosen(cell, block):
    """Whether a row's bits have a block."""
    return u32(i64(cell + SELECTED) + 4 * (block >> 5)) >> (block & 31) & 1


@routine
def mask_unselected(cell, pages, n, block):
    """The scores of what was not chosen."""
    for i in range(n):
        at, scores = i64(pages + ENTRY * i + AT), i64(cell + SCORES) + 4 * PAGE * i
        for j in range(PAGE):
            if not chosen(cell, (at + j) // block):
                set_f32(scores + 4 * j, np.float32(-np.inf))


@routine
def none_selected(cells, rows, at, block):
    """Whether no row has chosen anything of a page."""
    for r in range(rows):
        for b in range(at // block, (at + PAGE - 1) // block + 1):
            if chosen(cells + r * CELL, b):
                return False
    return True


@device
def shape_scores(s, at, position, lowest, highest, scale, cap, slope, biases):
    """Scale, cap and bias 8 scores of positions at, at+1, …; those outside the mask become -inf."""
    s = s * splat_f32(scale)
    if cap > np.float32(0):
        s = tanh8(s / splat_f32(cap)) * splat_f32(cap)
    where = iota_i32() + splat_i32(np.int32(at))
    ahead = cvt_f32(where) - splat_f32(np.float32(position))
    s = fma(splat_f32(slope), zero_f32() - max_f32(ahead, zero_f32() - ahead), s)
    if biases:
        s = s + load_f32(biases + 4 * at)
    return within(where, splat_i32(np.int32(lowest)), splat_i32(np.int32(highest)), s, MINUS_INF())


@device
def store_two(address, x, y):
    store_f32(address, x)
    store_f32(address + 32, y)


@device
def put_two(address, x, y):
    put_wide(address, x)
    put_wide(address + 4 * WIDE, y)


@device
def seen_pages(cell, pages, n):
    """How many of a chunk's pages a row sees the beginning of."""
    highest = i64(cell + HIGHEST)
    while n > 0 and i64(pages + ENTRY * (n - 1) + AT) > highest:
        n -= 1
    return n


@routine
def see(cells, rows, pages, n):
    """Note for each row how many of a chunk's pages any of the four rows sees that are computed together."""
    for r in range(0, rows, 4):
        most = 0
        for i in range(r, min(r + 4, rows)):
            most = max(most, seen_pages(cells + i * CELL, pages, n))
        for i in range(r, min(r + 4, rows)):
            set_i64(cells + i * CELL + SEEN, most)


@routine
def shape_row(cell, pages, block, scale, cap, value_dim):
    """Scale and mask a row's scores of a chunk; the largest goes to its partial result."""
    position, lowest, highest, slope = i64(cell + POSITION), i64(cell + LOWEST), i64(cell + HIGHEST), f32(cell + SLOPE)
    scores, n, biases = i64(cell + SCORES), i64(cell + SEEN), i64(cell + BIASES)
    if i64(cell + SELECTED):
        mask_unselected(cell, pages, n, block)
    plain, tops, most = slope == np.float32(0) and cap == np.float32(0) and biases == 0, MINUS_INF(), wide_minus_inf()
    for i in range(n):
        at, page = i64(pages + ENTRY * i + AT), scores + 4 * PAGE * i
        if plain and lowest <= at and at + PAGE - 1 <= highest:  # the same bits, in fewer operations
            for here in range(page, page + 4 * PAGE, 4 * WIDE):
                s = load_wide(here) * splat(scale)
                put_wide(here, s)
                most = wide_max(most, s)
        else:
            s0 = shape_scores(load_f32(page), at, position, lowest, highest, scale, cap, slope, biases)
            s1 = shape_scores(load_f32(page + 32), at + 8, position, lowest, highest, scale, cap, slope, biases)
            store_two(page, s0, s1)
            tops = max_f32(tops, max_f32(s0, s1))
    set_f32(i64(cell + PARTIAL) + partial_size(value_dim) - 8, hmax_f32(max_f32(tops, half_max(most))))


@routine
def weigh_row(cell, value_dim):
    """A row's scores of a chunk become weights, e**(score - largest); their sum goes to its partial result."""
    scores, end, total = i64(cell + SCORES), i64(cell + PARTIAL) + partial_size(value_dim), zero_f32()
    top = f32(end - 8)
    least = splat(top if top > np.float32(-np.inf) else np.float32(0))  # a masked chunk weighs nothing
    for page in range(scores, scores + 4 * PAGE * i64(cell + SEEN), 4 * PAGE):
        for here in range(page, page + 4 * PAGE, 4 * WIDE):
            put_wide(here, wide_exp(load_wide(here) - least))
        total = total + (load_f32(page) + load_f32(page + 32))
    set_f32(end - 4, hsum_f32(total))


@routine
def softmax_rows(cells, rows, pages, block, scale, cap, value_dim):
    """The softmax of each row's scores of a chunk; first all the maxima, so that rows need not wait for theirs."""
    for cell in range(cells, cells + rows * CELL, CELL):
        shape_row(cell, pages, block, scale, cap, value_dim)
    for cell in range(cells, cells + rows * CELL, CELL):
        weigh_row(cell, value_dim)


def score_rows(layout: KvLayout) -> Any:
    key, scale, scaled = layout.wide.key, layout.wide.scale, layout.scaled

    @routine
    def run(c0, c1, c2, c3, pages, n, dim, fetch):
        """Four rows' queries times a chunk's keys. Prefetches its values, `fetch` bytes apart."""
        t0, t1, t2, t3 = i64(c0 + SCORES), i64(c1 + SCORES), i64(c2 + SCORES), i64(c3 + SCORES)
        for page in range(0, n, TOGETHER):
            q0, q1, q2, q3 = i64(c0 + QUERY), i64(c1 + QUERY), i64(c2 + QUERY), i64(c3 + QUERY)
            near, far = pages + ENTRY * page, pages + ENTRY * min(page + TOGETHER - 1, n - 1)
            keys, far_keys, values, far_values = (
                i64(near + KEYS),
                i64(far + KEYS),
                i64(near + VALUES),
                i64(far + VALUES),
            )
            a0 = a1 = b0 = b1 = d0 = d1 = e0 = e1 = zero()
            start = 0
            while start < dim:
                m = min(RUN, dim - start) if scaled else dim
                s0, s1 = scale(keys, start, 0), scale(far_keys, start, FAR)
                for i in range(m):
                    if fetch:
                        prefetch(values)
                        values += fetch
                        if TOGETHER > 1:
                            prefetch(far_values)
                            far_values += fetch
                    k0, k1 = key(keys, start, i, 0), key(far_keys, start, i, FAR)
                    if scaled:
                        k0, k1 = k0 * s0, k1 * s1
                    x = splat(f32(q0 + 4 * i))
                    a0, a1 = wide_fma(k0, x, a0), wide_fma(k1, x, a1)
                    x = splat(f32(q1 + 4 * i))
                    b0, b1 = wide_fma(k0, x, b0), wide_fma(k1, x, b1)
                    x = splat(f32(q2 + 4 * i))
                    d0, d1 = wide_fma(k0, x, d0), wide_fma(k1, x, d1)
                    x = splat(f32(q3 + 4 * i))
                    e0, e1 = wide_fma(k0, x, e0), wide_fma(k1, x, e1)
                q0, q1, q2, q3 = q0 + 4 * m, q1 + 4 * m, q2 + 4 * m, q3 + 4 * m
                start += m
            put_two(t0 + 64 * page, a0, a1)
            put_two(t1 + 64 * page, b0, b1)
            put_two(t2 + 64 * page, d0, d1)
            put_two(t3 + 64 * page, e0, e1)

    return run


@device
def span_of(entry, lowest, late):
    """A page's values, and which of its positions may be read."""
    at = i64(entry + AT)
    return i64(entry + VALUES), max(lowest - at, 0), min(late - at + 1, PAGE)


def weigh_two(vec: Vec, value: Any) -> Any:
    """Σ weight × value over a chunk, for four rows, of two registers of elements from i on."""
    fma, zero, splat, store = fma_of(vec), fill_of(vec, 0.0), splat_of(vec, types.float32), storer(vec)
    lanes = vec.ir.count

    @device
    def put(address, x, y):
        store(address, x)
        store(address + 4 * lanes, y)

    @routine
    def run(c0, c1, c2, c3, pages, n, step, i, dim, lowest, late, fetch):
        w0, w1, w2, w3 = i64(c0 + SCORES), i64(c1 + SCORES), i64(c2 + SCORES), i64(c3 + SCORES)
        a0 = a1 = b0 = b1 = d0 = d1 = e0 = e1 = zero()
        for page in range(n):
            entry, shift = pages + ENTRY * page, 64 * page
            values, low, high = span_of(entry, lowest, late)
            following = i64(entry + NEXT) + i * fetch
            for j in range(low, high):
                if fetch:
                    for line in range(lanes // 8):
                        prefetch(following + line * PAGE * fetch)
                    following += fetch
                v0, v1 = value(values + j * step, i, dim), value(values + j * step, i + lanes, dim)
                w = splat(f32(w0 + shift + 4 * j))
                a0, a1 = fma(w, v0, a0), fma(w, v1, a1)
                w = splat(f32(w1 + shift + 4 * j))
                b0, b1 = fma(w, v0, b0), fma(w, v1, b1)
                w = splat(f32(w2 + shift + 4 * j))
                d0, d1 = fma(w, v0, d0), fma(w, v1, d1)
                w = splat(f32(w3 + shift + 4 * j))
                e0, e1 = fma(w, v0, e0), fma(w, v1, e1)
        put(i64(c0 + PARTIAL) + 4 * i, a0, a1)
        put(i64(c1 + PARTIAL) + 4 * i, b0, b1)
        put(i64(c2 + PARTIAL) + 4 * i, d0, d1)
        put(i64(c3 + PARTIAL) + 4 * i, e0, e1)

    return run


def weigh_rows(layout: KvLayout) -> Any:
    value, two_wide, two = layout.eight.value, weigh_two(wide, layout.wide.value), weigh_two(f32x8, layout.eight.value)

    @routine
    def run(c0, c1, c2, c3, pages, n, step, dim, lowest, late, fetch):
        """Σ weight × value over a chunk, for four rows. Prefetches the next chunk's keys, `fetch` bytes apart."""
        i = 0
        while i + 2 * WIDE <= dim:
            two_wide(c0, c1, c2, c3, pages, n, step, i, dim, lowest, late, fetch)
            i += 2 * WIDE
        if WIDE > 8 and i + 16 <= dim:
            two(c0, c1, c2, c3, pages, n, step, i, dim, lowest, late, fetch)
            i += 16
        w0, w1, w2, w3 = i64(c0 + SCORES), i64(c1 + SCORES), i64(c2 + SCORES), i64(c3 + SCORES)
        while i < dim:
            a = b = c = d = zero_f32()
            for page in range(n):
                shift = 64 * page
                values, low, high = span_of(pages + ENTRY * page, lowest, late)
                for j in range(low, high):
                    v = value(values + j * step, i, dim)
                    a = fma(splat_f32(f32(w0 + shift + 4 * j)), v, a)
                    b = fma(splat_f32(f32(w1 + shift + 4 * j)), v, b)
                    c = fma(splat_f32(f32(w2 + shift + 4 * j)), v, c)
                    d = fma(splat_f32(f32(w3 + shift + 4 * j)), v, d)
            store_f32(i64(c0 + PARTIAL) + 4 * i, a)
            store_f32(i64(c1 + PARTIAL) + 4 * i, b)
            store_f32(i64(c2 + PARTIAL) + 4 * i, c)
            store_f32(i64(c3 + PARTIAL) + 4 * i, d)
            i += 8

    return run


@device
def put_part(x, i, dim, value):
    if i + 8 <= dim:
        store_f32(x + 4 * i, value)
    else:
        store_f32_part(x + 4 * i, value, dim - i)


def read_values(layout: KvLayout) -> Any:
    key, scale, scaled = layout.eight.key, layout.eight.scale, layout.scaled

    @routine
    def run(keys, target, dim):
        """A latent page's values: its keys' first elements, a row per position, as float32."""
        for i in range(dim):
            start = i & ~(RUN - 1)
            for half in range(0, PAGE, 8):
                k = key(keys, start, i - start, half)
                k, cell = k * scale(keys, start, half) if scaled else k, eight()
                store_f32(cell, k)
                for j in range(8):
                    set_f32(target + 4 * ((half + j) * dim + i), f32(cell + 4 * j))

    return run


@device
def clear(x, dim):
    for i in range(0, dim, 8):
        put_part(x, i, dim, zero_f32())


@routine
def clear_outputs(cells, rows, dim):
    for cell in range(cells, cells + rows * CELL, CELL):
        clear(i64(cell + OUT), dim)


@routine
def merge(cells, rows, partials, dim):
    """Merge a chunk's partial result into that of the chunks before: out ← out × a + partial × b."""
    whole = dim & -WIDE
    for cell in range(cells, cells + rows * CELL, CELL):
        end = partials + partial_size(dim)
        before, top, out = f32(cell + TOP), f32(end - 8), i64(cell + OUT)
        if top > np.float32(-np.inf):
            most = max(before, top)
            a, b = first_f32(exp8(splat_f32(before - most))), first_f32(exp8(splat_f32(top - most)))
            set_f32(cell + TOP, most)
            set_f32(cell + SUM, f32(cell + SUM) * a + f32(end - 4) * b)
            for i in range(0, whole, WIDE):
                x = load_wide(out + 4 * i) * splat(a)
                put_wide(out + 4 * i, wide_fma(load_wide(partials + 4 * i), splat(b), x))
            for i in range(whole, dim, 8):
                put_part(out, i, dim, fma(part(partials, i, dim), splat_f32(b), part(out, i, dim) * splat_f32(a)))
        partials = end


@routine
def divide_by_sums(cells, rows, dim):
    for cell in range(cells, cells + rows * CELL, CELL):
        out, total = i64(cell + OUT), splat_f32(f32(cell + SUM))
        for i in range(0, dim, 8):
            put_part(out, i, dim, part(out, i, dim) / total)
