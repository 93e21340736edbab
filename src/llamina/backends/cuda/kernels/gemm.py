"""Several tokens times a quantized weight, by tensor cores: tiles are dequantized to float16 in registers, on their
way from memory.

The words that a lane loads become its own elements of the left operand (fragment order, see `activations`), so
weights never pass through shared memory as float16. Sums are in float32, along the columns in order; `SPLIT` parts
of the columns are summed apart and added in order. So a token's result does not depend on the other tokens, nor on
how many they are.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from llamina.backends.cuda.kernels.tiles import (
    INTERPRETED,
    by_16,
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
    table_of,
)

# Codes become float16 as they are: the lower bits of a float16 count units of 2⁻²⁴. So scales are given 2²⁴ times too
# large, which float16 can hold because `Layout.gain` has made them small.
UNIT = tl.constexpr(2.0**-24)


@triton.jit
def doubled(v):
    """float32 → float16, twice in a word."""
    if INTERPRETED:
        h = v.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        return h | (h << 16)
    else:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $1, $1;", "=r,f", [v], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def product_of(field, s, m):
    """What `fma.rn.f16x2` makes of one of its halves, where there is none: field · 2⁻²⁴ · s + m."""
    scale = (s & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    low = (m & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    return (field.to(tl.float32) * UNIT * scale + low).to(tl.float16)


@triton.jit
def bytes_to_halves(v, s, m):
    """Four unsigned bytes of v as float16: byte · s + m; s and m are doubled float16."""
    if INTERPRETED:
        a = product_of(v & 255, s, m)
        b = product_of((v >> 8) & 255, s, m)
        c = product_of((v >> 16) & 255, s, m)
        d = product_of((v >> 24) & 255, s, m)
        return a, b, c, d
    else:
        return tl.inline_asm_elementwise(
            """{ .reg .b32 a, b; and.b32 a, $4, 0x00FF00FF; shr.u32 b, $4, 8; and.b32 b, b, 0x00FF00FF;
            fma.rn.f16x2 a, a, $5, $6; fma.rn.f16x2 b, b, $5, $6; mov.b32 {$0, $2}, a; mov.b32 {$1, $3}, b; }""",
            "=h,=h,=h,=h,r,r,r",
            [v, s, m],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )


@triton.jit
def nibbles_to_halves(v, s, m, UPPER: tl.constexpr):
    """The lower or upper nibbles of four bytes as float16: nibble · s + m; for upper ones, s is a sixteenth."""
    if INTERPRETED:
        a = product_of(v & (0xF0 if UPPER else 0x0F), s, m)
        b = product_of((v >> 8) & (0xF0 if UPPER else 0x0F), s, m)
        c = product_of((v >> 16) & (0xF0 if UPPER else 0x0F), s, m)
        d = product_of((v >> 24) & (0xF0 if UPPER else 0x0F), s, m)
        return a, b, c, d
    else:
        MASK: tl.constexpr = "0x00F000F0" if UPPER else "0x000F000F"
        return tl.inline_asm_elementwise(
            "{ .reg .b32 a, b; and.b32 a, $4, " + MASK + "; shr.u32 b, $4, 8; and.b32 b, b, " + MASK + ";"
            "fma.rn.f16x2 a, a, $5, $6; fma.rn.f16x2 b, b, $5, $6; mov.b32 {$0, $2}, a; mov.b32 {$1, $3}, b; }",
            "=h,=h,=h,=h,r,r,r",
            [v, s, m],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=1,
        )


@triton.constexpr_function
def biased(form):
    """By how much the bytes of `levels_of(…, 128)` are too large."""
    return 128 if low_of(form) == 8 or len(table_of(form, 0)) else offset_of(form)


@triton.jit
def scale_words(s, m, gain, OFFSET: tl.constexpr, MINIMA: tl.constexpr):
    """Scale and minimum of a run as doubled float16: for codes from zero up, and times the gain."""
    scale = (s * (gain * 2.0**24)).to(tl.float16).to(tl.float32)
    least = m * gain if MINIMA else scale * (-OFFSET * UNIT)
    return doubled(scale)[:, :, :, None], doubled(scale * 0.0625)[:, :, :, None], doubled(least)[:, :, :, None]


@triton.jit
def weights(low, high, scale, tops, tile, half, gain, FORM: tl.constexpr):
    """Tiles [T] as float16, of which the first half are the upper and the others the lower 8 of 16 rows: [8 T, 128].

    They are the first (half 0) or the last tiles of their units, what these have in common being `tops`.
    """
    T: tl.constexpr = tile.shape[0]
    OFFSET: tl.constexpr = biased(FORM)
    MINIMA: tl.constexpr = has_minima(FORM)
    planes = load_planes(low, high, tile, FORM)
    s0, s1, m0, m1 = load_scales(tops, scale, tile, half, scales_of(FORM))
    zero = tl.zeros([T, 8, 4, 4], tl.int32)
    a, a16, am = scale_words(s0, m0, gain, OFFSET, MINIMA)
    b, b16, bm = a, a16, am
    if by_16(FORM):
        b, b16, bm = scale_words(s1, m1, gain, OFFSET, MINIMA)
    if nibbles_only(FORM):
        v0, v1, v2, v3 = nibbles_to_halves(planes[0], a + zero, am + zero, False)
        w0, w1, w2, w3 = nibbles_to_halves(planes[0], b16 + zero, bm + zero, True)
    else:
        first, last = levels_of(planes, FORM, 128)
        v0, v1, v2, v3 = bytes_to_halves(first, a + zero, am + zero)
        w0, w1, w2, w3 = bytes_to_halves(last, b + zero, bm + zero)
    v = tl.join(tl.join(v0, v2), tl.join(v1, v3))  # tile g t c e h
    w = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    v = tl.reshape(tl.join(v, w), [2, T // 2, 8, 4, 4, 2, 2, 2])  # r w g t c e h s
    return tl.reshape(tl.permute(v, (1, 0, 2, 7, 4, 6, 3, 5)), [8 * T, 128])  # w r g, s c h t e


@triton.jit
def tile_places(first, groups, WARPS: tl.constexpr):
    """Row groups [2 · WARPS] that start at `first`, in the order of `weights`; those beyond the last are the last."""
    p = tl.arange(0, 2 * WARPS)
    return tl.minimum(first + p % WARPS * 2 + p // WARPS, groups - 1)


@triton.jit
def gemm(
    xf, xe, low, high, scale, top, out, add, bias, source, order, starts, N, groups, count, gain,
    FORM: tl.constexpr, TILES: tl.constexpr, BM: tl.constexpr, SPLIT: tl.constexpr, WARPS: tl.constexpr,
    STAGES: tl.constexpr, WHOLE: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, EXPERTS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias), 16 · WARPS rows of w by BM tokens a program.

    Grid (row blocks, token blocks, SPLIT). With EXPERTS, tokens are items in the order of `grouping.group`. With SPLIT
    parts, out is [SPLIT, count, N], for `combine`. WHOLE: a step takes all tiles of a unit, otherwise one.
    """
    PADDED: tl.constexpr = TILES * 128
    HALVES: tl.constexpr = halves_in(FORM)
    UNITS: tl.constexpr = TILES // HALVES
    ROWS: tl.constexpr = 16 * WARPS
    block = tl.program_id(0)
    part = tl.program_id(2)
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    expert, m, here = tokens_of(tl.program_id(1), order, starts, count, BM, EXPERTS)
    row = m
    if EXPERTS > 0:
        row = tl.load(source + m)
    group = expert * groups + tile_places(block * (2 * WARPS), groups, WARPS)
    xp = xf + row[:, None] * PADDED + tl.arange(0, 128)[None, :]
    acc = tl.zeros([ROWS, BM], tl.float32)
    if WHOLE:
        for k in tl.range(part * UNITS // SPLIT, (part + 1) * UNITS // SPLIT, num_stages=STAGES):
            tops = load_tops(scale, top, group * UNITS + k, scales_of(FORM))
            for half in tl.static_range(HALVES):
                tile = group * TILES + k * HALVES + half
                a = weights(low, high, scale, tops, tile, half, gain, FORM)
                acc = tl.dot(a, tl.trans(tl.load(xp + (k * HALVES + half) * 128, mask=here[:, None], other=0.0)), acc)
    else:
        for k in tl.range(part * UNITS // SPLIT * HALVES, (part + 1) * UNITS // SPLIT * HALVES, num_stages=STAGES):
            tops = load_tops(scale, top, group * UNITS + k // HALVES, scales_of(FORM))
            a = weights(low, high, scale, tops, group * TILES + k, k % HALVES, gain, FORM)
            acc = tl.dot(a, tl.trans(tl.load(xp + k * 128, mask=here[:, None], other=0.0)), acc)
    n = block * ROWS + tl.arange(0, ROWS)
    if SPLIT > 1:
        inside = (n < N)[:, None] & here[None, :]
        at = m[None, :].to(tl.int64) * N + n[:, None]
        tl.store(out + part.to(tl.int64) * count * N + at, acc, mask=inside)
    else:
        finish(acc, n, m, row, here, xe, out, add, bias, N, gain, True, ADD, BIAS)


@triton.jit
def tokens_of(block, order, starts, count, BM: tl.constexpr, EXPERTS: tl.constexpr):
    """The expert of a block of tokens, the tokens [BM] of it, and which of these there are; others are repetitions."""
    if EXPERTS == 0:
        m = block * BM + tl.arange(0, BM)
        expert = 0
        here = m < count
        m = tl.minimum(m, count - 1)
    else:
        e = tl.arange(0, triton.next_power_of_2(EXPERTS))
        start = tl.load(starts + e, mask=e < EXPERTS, other=0)
        end = tl.load(starts + e + 1, mask=e < EXPERTS, other=0)
        blocks = tl.cumsum((end - start + BM - 1) // BM, 0)  # through each expert
        expert = tl.sum((blocks <= block).to(tl.int32), 0)
        mine = e == expert  # of no expert, where the block is beyond the last
        before = tl.sum(tl.where(mine, blocks - (end - start + BM - 1) // BM, 0), 0)
        first = tl.sum(tl.where(mine, start, 0), 0) + (block - before) * BM
        last = tl.sum(tl.where(mine, end, 0), 0)
        slot = first + tl.arange(0, BM)
        here = slot < last
        m = tl.load(order + slot, mask=here, other=0)
        expert = tl.minimum(expert, EXPERTS - 1)
    return expert, m, here


@triton.jit
def finish(
    y, n, m, row, here, xe, out, add, bias, N, gain, POWERS: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr
):
    """Undo the powers of two of rows and of the weight, add what is to be added, and store [rows n, tokens m]."""
    inside = (n < N)[:, None] & here[None, :]
    at = m[None, :].to(tl.int64) * N + n[:, None]
    if POWERS:
        y *= (tl.load(xe + row) / gain)[None, :]
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0)[:, None]
    if ADD:
        y += tl.load(add + at, mask=inside, other=0.0)
    tl.store(out + at, y, mask=inside)


@triton.jit
def combine(
    parts, xe, out, add, bias, source, N, count, gain,
    SPLIT: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, GROUPED: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The sum of SPLIT parts in order, and what follows a product; grid (columns / BLOCK, count)."""
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = tl.program_id(1).to(tl.int64)
    row = m
    if GROUPED:
        row = tl.load(source + m)
    y = tl.load(parts + m * N + n, mask=n < N, other=0.0)
    for part in tl.static_range(1, SPLIT):
        y += tl.load(parts + (part * count + m) * N + n, mask=n < N, other=0.0)
    y *= tl.load(xe + row) / gain
    if BIAS:
        y += tl.load(bias + n, mask=n < N, other=0.0)
    if ADD:
        y += tl.load(add + m * N + n, mask=n < N, other=0.0)
    tl.store(out + m * N + n, y, mask=n < N)
