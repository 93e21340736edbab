"""One to four tokens times a quantized weight: dot products of 8-bit activations with codes, as fast as memory is read.

A program takes one group of 8 rows; its warps take tiles of it in turn, and a lane the run of 32 columns whose codes it has
loaded. Sums within a run are of whole numbers, so a scale is applied once to 16 or 32 of them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from llamina.backends.cuda.kernels.tiles import (
    INTERPRETED,
    by_16,
    bytes_of,
    dot4,
    has_minima,
    high_of,
    load_scales,
    load_words,
    look_up,
    low_of,
    offset_of,
    scales_of,
    table_of,
)


@triton.jit
def levels_of(low, high, FORM: tl.constexpr, PASS: tl.constexpr):
    """The levels of a pass over loaded planes as signed bytes [T, 8, 4, 4], before the format's offset."""
    LOW: tl.constexpr = low_of(FORM)
    HIGH: tl.constexpr = high_of(FORM)
    TABLE: tl.constexpr = table_of(FORM, 0)
    v = bytes_of(low, LOW, PASS)
    if HIGH > 0:
        v |= bytes_of(high, HIGH, PASS) << LOW
    if len(TABLE) > 0:
        v = look_up(v, TABLE)
    return v


@triton.jit
def load_block(x8, row, count, k, M: tl.constexpr, PADDED: tl.constexpr, PASS: tl.constexpr):
    """The 8-bit activations of a pass over tiles k [T]: words [T, M, 8, 4, 4], the same for each of 8 rows of weights."""
    T: tl.constexpr = k.shape[0]
    i = tl.arange(0, 128)[None, None, :]
    m = tl.arange(0, M)[None, :, None]
    at = (row + m % count) * (PADDED // 4) + k[:, None, None] * 32 + i // 4 % 4 * 8 + PASS * 4 + i % 4
    return tl.reshape(tl.load(x8.to(tl.pointer_type(tl.int32)) + at), [T, M, 8, 4, 4])


@triton.jit
def load_run(values, row, count, k, M: tl.constexpr, PADDED: tl.constexpr):
    """A number for each run of activations: [T, M, 8, 4]."""
    T: tl.constexpr = k.shape[0]
    lane = tl.arange(0, 32)[:, None, None]
    m = tl.arange(0, M)[None, None, :]
    at = (row + m % count) * (PADDED // 32) + k[None, :, None] * 4 + lane % 4
    v = tl.load(values + tl.max_contiguous(at, [1, 1, 1]))
    return tl.reshape(tl.permute(v, (1, 2, 0)), [T, M, 8, 4])


@triton.jit
def gemv(
    x8, xd, xs, low, high, scale, top, out, add, bias, expert, source, N, groups, count,
    FORM: tl.constexpr, TILES: tl.constexpr, M: tl.constexpr, T: tl.constexpr,
    ADD: tl.constexpr, BIAS: tl.constexpr, GROUPED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias) for M ≥ count tokens; grid (groups, items).

    Without GROUPED there is one item. With it, each has a matrix (`expert`) and a row of x (`source`) of its own, and M and count are 1.
    T tiles are loaded at a time.
    """
    KIND: tl.constexpr = scales_of(FORM)
    OFFSET: tl.constexpr = offset_of(FORM)
    PADDED: tl.constexpr = TILES * 128
    group = tl.program_id(0)
    item = tl.program_id(1)
    row = 0
    first = group
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    if GROUPED:
        first = tl.load(expert + item) * groups + group
        row = tl.load(source + item)
    acc = tl.zeros([T, M, 8, 4], tl.float32)
    for start in range(0, TILES, T):
        k = start + tl.arange(0, T)
        if TILES % T:
            k = tl.where(k < TILES, k, 0)
        tile = first * TILES + k
        w0 = load_words(low, tile, low_of(FORM), 0)
        w1 = w0
        h = w0
        if low_of(FORM) == 8:
            w1 = load_words(low, tile, 8, 1)
        if high_of(FORM) > 0:
            h = load_words(high, tile, high_of(FORM), 0)
        s0, s1, m0, m1 = load_scales(scale, top, tile, tile // 2, (k & 1)[:, None, None], KIND, True)
        x0 = load_block(x8, row, count, k, M, PADDED, 0)
        x1 = load_block(x8, row, count, k, M, PADDED, 1)
        d = load_run(xd, row, count, k, M, PADDED)
        sums = load_run(xs, row, count, k, M, PADDED)
        sum0 = (sums << 16) >> 16
        sum1 = sums >> 16
        zero = tl.zeros([T, M, 8, 4, 4], tl.int32)
        a = levels_of(w0, h, FORM, 0)[:, None] + zero
        b = levels_of(w1, h, FORM, 1)[:, None] + zero
        if by_16(FORM):
            i0 = tl.sum(dot4(a, x0, zero), 4)
            i1 = tl.sum(dot4(b, x1, zero), 4)
            if OFFSET:
                i0 -= OFFSET * sum0
                i1 -= OFFSET * sum1
            r = s0[:, None] * i0.to(tl.float32) + s1[:, None] * i1.to(tl.float32)
            if has_minima(FORM):
                r += m0[:, None] * sum0.to(tl.float32) + m1[:, None] * sum1.to(tl.float32)
        else:
            i0 = tl.sum(dot4(a, x0, dot4(b, x1, zero)), 4)
            if OFFSET:
                i0 -= OFFSET * (sum0 + sum1)
            r = s0[:, None] * i0.to(tl.float32)
            if has_minima(FORM):
                r += m0[:, None] * (sum0 + sum1).to(tl.float32)
        if TILES % T:
            r = tl.where((start + tl.arange(0, T) < TILES)[:, None, None, None], r, 0.0)
        acc += d * r
    y = tl.sum(tl.sum(acc, 3), 0)  # [M, 8]
    n = group * 8 + tl.arange(0, 8)
    m = tl.arange(0, M)
    at = (item + m)[:, None].to(tl.int64) * N + n[None, :]
    inside = (n < N)[None, :] & (m < count)[:, None]
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    if ADD:
        y += tl.load(add + at, mask=inside, other=0.0)
    tl.store(out + at, y, mask=inside)
