"""A few tokens times a quantized weight: dot products of 8-bit activations with codes, as fast as memory is read.

A program goes through groups of 8 rows; its warps share the columns, and a lane has runs of 32 of them. While it
multiplies what it has, the tiles that follow are on their way to shared memory. Sums within a run are of whole
numbers, so a scale is applied once to 16 or 32 of them.

Activations are 8-bit blocks that another kernel has made (INPUT "q8"), or float32 that each program makes blocks of
for itself ("f32"), after an RMS norm if need be ("norm"): that saves kernels where one token is all there is.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from llamina.backends.cuda.kernels.activations import blocks_of
from llamina.backends.cuda.kernels.tiles import (
    INTERPRETED,
    by_16,
    dot4,
    dot4_unsigned,
    fetch_ahead,
    halves_in,
    has_minima,
    levels_of,
    load_planes,
    load_scales,
    load_tops,
    low_of,
    nibbles_only,
    offset_of,
    scales_of,
)


@triton.jit
def word_places(row, count, k, M: tl.constexpr, PADDED: tl.constexpr):
    """Where lanes find their words of the first pass over tiles k [T] of 8-bit activations: [T, M, 128].

    They are the same for the 8 rows of weights: each lane loads what it multiplies. Triton gives the lanes of a warp to
    the last axis where addresses are contiguous there, and else to the first; so they are where the words of weights
    have them.
    """
    i = tl.arange(0, 128)[None, None, :]
    token = row + tl.arange(0, M)[None, :, None] % count
    return token * (PADDED // 4) + k[:, None, None] * 32 + i // 4 % 4 * 8 + i % 4


@triton.jit
def load_x(x, xd, xs, row, count, k, M: tl.constexpr, PADDED: tl.constexpr):
    """8-bit activations of tiles k [T]: words of both passes [T, M, 8, 4, 4], scales and sums of both [T, M, 8, 4]."""
    T: tl.constexpr = k.shape[0]
    words = x.to(tl.pointer_type(tl.int32)) + word_places(row, count, k, M, PADDED)
    x0 = tl.reshape(tl.load(words), [T, M, 8, 4, 4])
    x1 = tl.reshape(tl.load(words + 4), [T, M, 8, 4, 4])
    lane = tl.arange(0, 32)[:, None, None]
    at = (row + tl.arange(0, M)[None, None, :] % count) * (PADDED // 32) + k[None, :, None] * 4 + lane % 4
    at = tl.max_contiguous(at, [1, 1, 1])
    d = tl.reshape(tl.permute(tl.load(xd + at), (1, 2, 0)), [T, M, 8, 4])
    sums = tl.reshape(tl.permute(tl.load(xs + at), (1, 2, 0)), [T, M, 8, 4])
    return x0, x1, d, (sums << 16) >> 16, sums >> 16


@triton.jit
def load_row(x, row, count, k, inside, stride, M: tl.constexpr, K: tl.constexpr):
    """float32 activations of tiles k [T], those that are `inside`: [T, M, 128]."""
    column = k[:, None, None] * 128 + tl.arange(0, 128)[None, None, :]
    token = row + tl.arange(0, M)[None, :, None] % count
    return tl.load(x + token * stride + column, mask=inside[:, None, None] & (column < K), other=0.0)


@triton.jit
def make_x(v, k, count, low, M: tl.constexpr):
    """float32 activations [T, M, 128] as `load_x` has them."""
    T: tl.constexpr = v.shape[0]
    q, d = blocks_of(tl.reshape(v, [T * M * 4, 32]))
    sum0, sum1 = tl.split(tl.reshape(tl.sum(tl.reshape(q, [T * M * 8, 16]), 1), [T, M, 1, 4, 2]))
    shift = tl.arange(0, 4)[None, :] * 8
    words = tl.sum((tl.reshape(q, [T * M * 32, 4]) & 255) << shift, 1)
    x0, x1 = tl.split(tl.permute(tl.reshape(words, [T, M, 1, 4, 2, 4]), (0, 1, 2, 3, 5, 4)))
    # Nothing is added, but the lanes are where `load_x` would have them.
    none = tl.reshape(tl.load(low + word_places(0, count, k * 0, M, 128)), [T, M, 8, 4, 4]) & (count >> 30)
    few = tl.reshape(tl.sum(none, 4), [T, M, 8, 4])
    return x0 + none, x1 + none, tl.reshape(d, [T, M, 1, 4]) + few.to(tl.float32), sum0 + few, sum1 + few


@triton.jit
def dots(low, high, scale, tops, tile, x, M: tl.constexpr, FORM: tl.constexpr, HALF: tl.constexpr):
    """Sums of each run's products: [T, M, 8, 4]."""
    T: tl.constexpr = tile.shape[0]
    OFFSET: tl.constexpr = offset_of(FORM)
    x0, x1, d, sum0, sum1 = x
    planes = load_planes(low, high, tile, FORM)
    s0, s1, m0, m1 = load_scales(tops, scale, tile, HALF, scales_of(FORM))
    zero = tl.zeros([T, M, 8, 4, 4], tl.int32)
    if nibbles_only(FORM):
        # The upper nibbles where they are, 16 times too large: one shift of the sum instead of one of each word.
        i0 = tl.sum(dot4((planes[0] & 0x0F0F0F0F)[:, None] + zero, x0, zero), 4)
        i1 = tl.sum(dot4_unsigned((planes[0] & -0x0F0F0F10)[:, None] + zero, x1, zero), 4) >> 4
    else:
        v0, v1 = levels_of(planes, FORM, 0)
        i0 = tl.sum(dot4(v0[:, None] + zero, x0, zero), 4)
        i1 = tl.sum(dot4(v1[:, None] + zero, x1, zero), 4)
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
def unit_dots(low, high, scale, top, place, x, z, M: tl.constexpr, FORM: tl.constexpr):
    """The same of units at `place` [T], whose tiles' activations are x and z."""
    tops = load_tops(scale, top, place, scales_of(FORM))
    r = dots(low, high, scale, tops, place * halves_in(FORM), x, M, FORM, 0)
    if halves_in(FORM) == 2:
        r += dots(low, high, scale, tops, place * 2 + 1, z, M, FORM, 1)
    return r


@triton.jit
def all_x(
    x, xd, xs, norm, row, count, low, stride, eps, unit, inside,
    M: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, HALVES: tl.constexpr, INPUT: tl.constexpr,
):  # fmt: skip
    """Activations of units [T]: of their first tiles, and of their second ones."""
    k = unit * HALVES
    if INPUT == "q8":
        a = load_x(x, xd, xs, row, count, k, M, TILES * 128)
        b = a
        if HALVES == 2:
            b = load_x(x, xd, xs, row, count, k + 1, M, TILES * 128)
    else:
        v = load_row(x, row, count, k, inside, stride, M, K)
        w = v
        if HALVES == 2:
            w = load_row(x, row, count, k + 1, inside, stride, M, K)
        if INPUT == "norm":
            squares = tl.sum(tl.sum(v * v, 2), 0)
            if HALVES == 2:
                squares += tl.sum(tl.sum(w * w, 2), 0)
            factor = (1.0 / tl.sqrt(squares / K + eps))[None, :, None]
            v = v * factor * load_row(norm, 0, 1, k, inside, 0, 1, K)
            if HALVES == 2:
                w = w * factor * load_row(norm, 0, 1, k + 1, inside, 0, 1, K)
        a = make_x(v, k, count, low, M)
        b = a
        if HALVES == 2:
            b = make_x(w, k, count, low, M)
    return a, b


@triton.jit
def sweep(
    x, xd, xs, norm, low, high, scale, top, low2, high2, scale2, top2, out, add, bias,
    N, groups, count, stride, eps, first, row, item, program, programs,
    FORM: tl.constexpr, TILES: tl.constexpr, K: tl.constexpr, M: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    INPUT: tl.constexpr, PAIR: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Row groups `program`, `program + programs`, … of a weight, from group `first` on.

    T units are multiplied at a time, by steps of which STAGES - 1 are being loaded. PAIR "silu" or "gelu": there are
    two weights of one form, and what is stored is act(x · wᵀ) · (x · w2ᵀ).
    """
    HALVES: tl.constexpr = halves_in(FORM)
    UNITS: tl.constexpr = TILES // HALVES
    STEPS: tl.constexpr = (UNITS + T - 1) // T
    tl.static_assert(STEPS == 1 or INPUT == "q8")
    mine = (groups - program + programs - 1) // programs
    here = tl.arange(0, T)
    unit = tl.minimum(here, UNITS - 1)
    a, b = all_x(x, xd, xs, norm, row, count, low, stride, eps, unit, here < UNITS, M, K, TILES, HALVES, INPUT)
    acc = tl.zeros([T, M, 8, 4], tl.float32)
    acc2 = tl.zeros([T, M, 8, 4], tl.float32)
    for i in tl.range(0, mine * STEPS, num_stages=STAGES):
        group = program + i // STEPS * programs
        k = i % STEPS * T + here
        good = (k < UNITS)[:, None, None, None]
        k = tl.minimum(k, UNITS - 1)
        if STEPS > 1:  # noqa: SIM102 - a constant, and a number
            if count > 0:  # within a condition, Triton loads when it is time to, and from the nearest cache
                a, b = all_x(x, xd, xs, norm, row, count, low, stride, eps, k, good, M, K, TILES, HALVES, INPUT)
        place = (first + group) * UNITS + k
        r = unit_dots(low, high, scale, top, place, a, b, M, FORM)
        if UNITS % T:
            r = tl.where(good, r, 0.0)
        if STEPS > 1:
            r = tl.where(i % STEPS == 0, r, acc + r)
        acc = r
        if PAIR != "":
            r = unit_dots(low2, high2, scale2, top2, place, a, b, M, FORM)
            if UNITS % T:
                r = tl.where(good, r, 0.0)
            if STEPS > 1:
                r = tl.where(i % STEPS == 0, r, acc2 + r)
            acc2 = r
        if i % STEPS == STEPS - 1:
            y = tl.sum(tl.sum(acc, 3), 0)  # [M, 8]
            if PAIR != "":
                y = activated(y, PAIR) * tl.sum(tl.sum(acc2, 3), 0)
            store_group(y, group, item, out, add, bias, N, count, ADD, BIAS)


@triton.jit
def activated(y, KIND: tl.constexpr):
    if KIND == "silu":
        y = y / (1.0 + tl.exp(-y))
    else:
        tl.static_assert(KIND == "gelu")
        z = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = y / (1.0 + tl.exp(-2.0 * z))
    return y


@triton.jit
def store_group(y, group, item, out, add, bias, N, count, ADD: tl.constexpr, BIAS: tl.constexpr):
    """The results [M, 8] of a row group, and what is added to them."""
    n = group * 8 + tl.arange(0, 8)
    m = tl.arange(0, y.shape[0])
    at = (item + m)[:, None].to(tl.int64) * N + n[None, :]
    good = (n < N)[None, :] & (m < count)[:, None]
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    if ADD:
        y += tl.load(add + at, mask=good, other=0.0)
    tl.store(out + at, y, mask=good)


@triton.jit
def gemv(
    x, xd, xs, norm, low, high, scale, top, low2, high2, scale2, top2, out, add, bias, expert, source,
    N, groups, count, stride, eps,
    FORM: tl.constexpr, TILES: tl.constexpr, K: tl.constexpr, M: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    INPUT: tl.constexpr, PAIR: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, GROUPED: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias) for M ≥ count tokens; grid (programs that share the groups, items).

    Without GROUPED there is one item. With it, each has a matrix (`expert`) and a row of x (`source`) of its own, and M
    and count are 1.
    """
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        if not GROUPED:  # weights do not depend on the kernel before
            fetch_ahead(low, tl.program_id(0) * TILES, TILES, low_of(FORM))
            if PAIR != "":
                fetch_ahead(low2, tl.program_id(0) * TILES, TILES, low_of(FORM))
        gdc_wait()
    item = tl.program_id(1)
    first = 0
    row = 0
    if GROUPED:
        first = tl.load(expert + item) * groups
        row = tl.load(source + item)
    sweep(
        x, xd, xs, norm, low, high, scale, top, low2, high2, scale2, top2, out, add, bias,
        N, groups, count, stride, eps, first, row, item, tl.program_id(0), tl.num_programs(0),
        FORM, TILES, K, M, T, STAGES, INPUT, PAIR, ADD, BIAS,
    )  # fmt: skip


@triton.jit
def gemv_three(
    x, xd, xs, norm, low, high, scale, top, low2, high2, scale2, top2, low3, high3, scale3, top3, out, out2, out3,
    bias, bias2, bias3, N, N2, N3, groups, groups2, groups3, programs, programs2, count, stride, eps,
    FORM: tl.constexpr, FORM2: tl.constexpr, FORM3: tl.constexpr, TILES: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
    T: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr, STAGES: tl.constexpr, INPUT: tl.constexpr, BIAS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Two or three weights times the same tokens (queries, keys and values): programs are shared out among them.

    The first `programs` take the first weight, the next `programs2` the second, and the others the third.
    """
    p = tl.program_id(0)
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        if p < programs:
            fetch_ahead(low, p * TILES, TILES, low_of(FORM))
        elif p < programs + programs2:
            fetch_ahead(low2, (p - programs) * TILES, TILES, low_of(FORM2))
        gdc_wait()
    if p < programs:
        sweep(
            x, xd, xs, norm, low, high, scale, top, low, high, scale, top, out, out, bias,
            N, groups, count, stride, eps, 0, 0, 0, p, programs,
            FORM, TILES, K, M, T, STAGES, INPUT, "", False, BIAS,
        )  # fmt: skip
    elif p < programs + programs2:
        sweep(
            x, xd, xs, norm, low2, high2, scale2, top2, low2, high2, scale2, top2, out2, out2, bias2,
            N2, groups2, count, stride, eps, 0, 0, 0, p - programs, programs2,
            FORM2, TILES, K, M, T2, STAGES, INPUT, "", False, BIAS,
        )  # fmt: skip
    else:
        sweep(
            x, xd, xs, norm, low3, high3, scale3, top3, low3, high3, scale3, top3, out3, out3, bias3,
            N3, groups3, count, stride, eps, 0, 0, 0, p - programs - programs2,
            tl.num_programs(0) - programs - programs2,
            FORM3, TILES, K, M, T3, STAGES, INPUT, "", False, BIAS,
        )  # fmt: skip
