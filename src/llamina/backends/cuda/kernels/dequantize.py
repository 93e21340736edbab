"""Quantized weights spelt out: rows as float32 (embeddings), or a whole matrix as float16 for long prompts."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.gemm import tile_places, weights
from llamina.backends.cuda.kernels.gemv import levels_of
from llamina.backends.cuda.kernels.tiles import (
    by_16,
    has_minima,
    high_of,
    load_scales,
    load_words,
    low_of,
    offset_of,
    scales_of,
    signed_byte,
)


@triton.jit
def image(
    low, high, scale, top, out, groups, gain, FORM: tl.constexpr, TILES: tl.constexpr, WARPS: tl.constexpr, STEP: tl.constexpr
):
    """out f16 [8 · groups, padded]: the same numbers as `gemm` multiplies, columns in fragment order; grid (row blocks, tiles / STEP)."""
    first = tl.program_id(0) * (2 * WARPS)
    group = tile_places(first, groups, WARPS)
    n = first * 8 + tl.arange(0, 16 * WARPS)
    at = out + n[:, None].to(tl.int64) * (TILES * 128) + tl.arange(0, 128)[None, :]
    for k in range(tl.program_id(1) * STEP, tl.minimum((tl.program_id(1) + 1) * STEP, TILES)):
        a = weights(low, high, scale, top, group * TILES + k, k & 1, gain, FORM)
        tl.store(at + k * 128, a, mask=(n < groups * 8)[:, None])


@triton.jit
def pick(v, g):
    """Row g of each tile: [T, 8, …] → [T, …]."""
    rows = tl.arange(0, 8).reshape([1, 8] + [1] * (len(v.shape) - 2))
    return tl.sum(tl.where(rows == g, v, 0), 1)


@triton.jit
def values_of(v, s, m, OFFSET: tl.constexpr, MINIMA: tl.constexpr, BYTE: tl.constexpr):
    """Byte BYTE of levels [T, 4, 4] as float32, bit for bit what `quant.decode` makes of it."""
    y = (signed_byte(v, 8 * BYTE) - OFFSET).to(tl.float32) * s[:, :, None]
    if MINIMA:
        y += m[:, :, None]
    return y


@triton.jit
def rows(
    ids, low, high, scale, top, out, stride, K: tl.constexpr, FORM: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr
):
    """out f32 [count, stride]: rows `ids` of a quantized weight, exactly; grid (count, tiles / T)."""
    i = tl.program_id(0)
    row = tl.load(ids + i).to(tl.int64)
    k = tl.program_id(1) * T + tl.arange(0, T)
    tile = row // 8 * TILES + tl.minimum(k, TILES - 1)
    OFFSET: tl.constexpr = offset_of(FORM)
    MINIMA: tl.constexpr = has_minima(FORM)
    w0 = load_words(low, tile, low_of(FORM), 0)
    w1 = w0
    h = w0
    if low_of(FORM) == 8:
        w1 = load_words(low, tile, 8, 1)
    if high_of(FORM) > 0:
        h = load_words(high, tile, high_of(FORM), 0)
    s0, s1, m0, m1 = load_scales(scale, top, tile, tile // 2, (k & 1)[:, None, None], scales_of(FORM), True)
    g = row % 8
    place = k[:, None, None] * 128 + tl.arange(0, 4)[None, :, None] * 32 + tl.arange(0, 4)[None, None, :] * 4
    for s in tl.static_range(2):
        if s == 0:
            v = pick(levels_of(w0, h, FORM, 0), g)
            a = pick(s0, g)
            b = pick(m0, g)
        else:
            v = pick(levels_of(w1, h, FORM, 1), g)
            a = pick(s1, g)
            b = pick(m1, g)
        for byte in tl.static_range(4):
            column = place + (16 * s + byte)
            y = values_of(v, a, b, OFFSET, MINIMA, byte)
            tl.store(out + i.to(tl.int64) * stride + column, y, mask=(column < K) & (k < TILES)[:, None, None])
