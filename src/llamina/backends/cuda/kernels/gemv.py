"""A few tokens times a quantized weight: dot products of 8-bit activations with codes, as fast as memory is read.

A program goes through groups of 8 rows; its warps share the columns, and a lane has runs of 32 of them. While it multiplies what it has,
the tiles that follow are on their way to shared memory. Sums within a run are of whole numbers, so a scale is
applied once to 16 or 32 of them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from llamina.backends.cuda.kernels.tiles import (
    INTERPRETED,
    by_16,
    dot4,
    dot4_unsigned,
    halves_in,
    has_minima,
    levels_of,
    load_planes,
    load_scales,
    load_tops,
    nibbles_only,
    offset_of,
    scales_of,
)


@triton.jit
def load_x(x8, xd, xs, row, count, k, M: tl.constexpr, PADDED: tl.constexpr):
    """Activations of tiles k [T]: words of both passes [T, M, 8, 4, 4], scales and sums of both [T, M, 8, 4].

    They are the same for the 8 rows of weights: each lane loads what it multiplies. Triton gives the lanes of a warp to the last
    axis where addresses are contiguous there, and else to the first; so they are where the words of weights have them.
    """
    T: tl.constexpr = k.shape[0]
    i = tl.arange(0, 128)[None, None, :]
    at = (row + tl.arange(0, M)[None, :, None] % count) * (PADDED // 4) + k[:, None, None] * 32 + i // 4 % 4 * 8 + i % 4
    words = x8.to(tl.pointer_type(tl.int32)) + at
    x0 = tl.reshape(tl.load(words), [T, M, 8, 4, 4])
    x1 = tl.reshape(tl.load(words + 4), [T, M, 8, 4, 4])
    lane = tl.arange(0, 32)[:, None, None]
    at = (row + tl.arange(0, M)[None, None, :] % count) * (PADDED // 32) + k[None, :, None] * 4 + lane % 4
    at = tl.max_contiguous(at, [1, 1, 1])
    d = tl.reshape(tl.permute(tl.load(xd + at), (1, 2, 0)), [T, M, 8, 4])
    sums = tl.reshape(tl.permute(tl.load(xs + at), (1, 2, 0)), [T, M, 8, 4])
    return x0, x1, d, (sums << 16) >> 16, sums >> 16


@triton.jit
def dots(low, high, scale, tops, tile, x, M: tl.constexpr, FORM: tl.constexpr, HALF: tl.constexpr):
    """Sums of each run's products: [T, M, 8, 4]."""
    T: tl.constexpr = tile.shape[0]
    OFFSET: tl.constexpr = offset_of(FORM)
    x0, x1, d, sum0, sum1 = x
    planes = load_planes(low, high, tile, FORM)
    s0, s1, m0, m1 = load_scales(tops, scale, tile, HALF, scales_of(FORM))
    zero = tl.zeros([T, M, 8, 4, 4], tl.int32)
    a = levels_of(planes, FORM, 0, 0)[:, None] + zero
    if nibbles_only(FORM):
        # The upper nibbles where they are, 16 times too large: one shift of the sum instead of one of each word.
        b = (planes[0] & -0x0F0F0F10)[:, None] + zero
        i1 = tl.sum(dot4_unsigned(b, x1, zero), 4) >> 4
    else:
        b = levels_of(planes, FORM, 1, 0)[:, None] + zero
        i1 = tl.sum(dot4(b, x1, zero), 4)
    i0 = tl.sum(dot4(a, x0, zero), 4)
    if by_16(FORM):
        if OFFSET:
            i0 -= OFFSET * sum0
            i1 -= OFFSET * sum1
        r = s0[:, None] * i0.to(tl.float32) + s1[:, None] * i1.to(tl.float32)
        if has_minima(FORM):
            r += m0[:, None] * sum0.to(tl.float32) + m1[:, None] * sum1.to(tl.float32)
    else:
        i0 += i1
        if OFFSET:
            i0 -= OFFSET * (sum0 + sum1)
        r = s0[:, None] * i0.to(tl.float32)
        if has_minima(FORM):
            r += m0[:, None] * (sum0 + sum1).to(tl.float32)
    return d * r


@triton.jit
def gemv(
    x8, xd, xs, low, high, scale, top, out, add, bias, expert, source, N, groups, count,
    FORM: tl.constexpr, TILES: tl.constexpr, M: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    ADD: tl.constexpr, BIAS: tl.constexpr, GROUPED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias) for M ≥ count tokens; grid (programs that share the groups, items).

    Without GROUPED there is one item. With it, each has a matrix (`expert`) and a row of x (`source`) of its own, and M and count are 1.
    T units are multiplied at a time, by steps of which STAGES - 1 are being loaded.
    """
    KIND: tl.constexpr = scales_of(FORM)
    HALVES: tl.constexpr = halves_in(FORM)
    UNITS: tl.constexpr = TILES // HALVES
    STEPS: tl.constexpr = (UNITS + T - 1) // T
    PADDED: tl.constexpr = TILES * 128
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    item = tl.program_id(1)
    first = 0
    row = 0
    if GROUPED:
        first = tl.load(expert + item) * groups
        row = tl.load(source + item)
    mine = (groups - tl.program_id(0) + tl.num_programs(0) - 1) // tl.num_programs(0)
    here = tl.arange(0, T)
    if STEPS == 1:
        unit = tl.minimum(here, UNITS - 1)
        x = load_x(x8, xd, xs, row, count, unit * HALVES, M, PADDED)
        z = x
        if HALVES == 2:
            z = load_x(x8, xd, xs, row, count, unit * HALVES + 1, M, PADDED)
    acc = tl.zeros([T, M, 8, 4], tl.float32)
    for i in tl.range(0, mine * STEPS, num_stages=STAGES):
        group = tl.program_id(0) + i // STEPS * tl.num_programs(0)
        k = i % STEPS * T + here
        inside = k < UNITS
        k = tl.minimum(k, UNITS - 1)
        place = (first + group) * UNITS + k
        tops = load_tops(scale, top, place, KIND)
        if STEPS > 1:
            x = load_x(x8, xd, xs, row, count, k * HALVES, M, PADDED)
        r = dots(low, high, scale, tops, place * HALVES, x, M, FORM, 0)
        if HALVES == 2:
            if STEPS > 1:
                z = load_x(x8, xd, xs, row, count, k * HALVES + 1, M, PADDED)
            r += dots(low, high, scale, tops, place * HALVES + 1, z, M, FORM, 1)
        if UNITS % T:
            r = tl.where(inside[:, None, None, None], r, 0.0)
        if STEPS > 1:
            acc = tl.where(i % STEPS == 0, r, acc + r)
        else:
            acc = r
        if i % STEPS == STEPS - 1:
            y = tl.sum(tl.sum(acc, 3), 0)  # [M, 8]
            n = group * 8 + tl.arange(0, 8)
            m = tl.arange(0, M)
            at = (item + m)[:, None].to(tl.int64) * N + n[None, :]
            good = (n < N)[None, :] & (m < count)[:, None]
            if BIAS:
                y += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
            if ADD:
                y += tl.load(add + at, mask=good, other=0.0)
            tl.store(out + at, y, mask=good)
