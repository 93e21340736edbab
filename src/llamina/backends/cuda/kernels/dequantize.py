"""Quantized weights spelt out: rows as float32 (embeddings), or a whole matrix as float16 for long prompts."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin
from llamina.backends.cuda.kernels.gemm import tile_places, weights
from llamina.backends.cuda.kernels.tiles import (
    halves_in,
    has_minima,
    levels_of,
    load_planes,
    load_scales,
    load_tops,
    offset_of,
    scales_of,
    signed_byte,
)


@triton.jit
def image(
    low, high, scale, top, out, groups, gain,
    FORM: tl.constexpr, TILES: tl.constexpr, WARPS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """out f16 [8 · groups, padded]: the numbers that `gemm` multiplies, columns in fragment order.

    Grid (row blocks, tiles / STEP).
    """
    first = tl.program_id(0) * (2 * WARPS)
    group = tile_places(first, groups, WARPS)
    n = first * 8 + tl.arange(0, 16 * WARPS)
    at = out + n[:, None].to(tl.int64) * (TILES * 128) + tl.arange(0, 128)[None, :]
    for k in range(tl.program_id(1) * STEP, tl.minimum((tl.program_id(1) + 1) * STEP, TILES)):
        tops = load_tops(scale, top, (group * TILES + k) // halves_in(FORM), scales_of(FORM))
        a = weights(low, high, scale, tops, group * TILES + k, k % halves_in(FORM), gain, FORM)
        tl.store(at + k * 128, a, mask=(n < groups * 8)[:, None])


@triton.jit
def pick(v, g):
    """Row g of each tile: [T, 8, …] → [T, …]."""
    rows = tl.arange(0, 8).reshape([1, 8] + [1] * (len(v.shape) - 2))
    return tl.sum(tl.where(rows == g, v, 0), 1)


@triton.jit
def store_run(v, s, m, out, column, K: tl.constexpr, OFFSET: tl.constexpr, MINIMA: tl.constexpr):
    """Levels [T, 4, 4], four to a word, as float32 columns: bit for bit what `quant.decode` makes of them."""
    for byte in tl.static_range(4):
        y = (signed_byte(v, 8 * byte) - OFFSET).to(tl.float32) * s[:, :, None]
        if MINIMA:
            y += m[:, :, None]
        tl.store(out + column + byte, y, mask=column + byte < K)


@triton.jit
def rows(
    ids, low, high, scale, top, out, stride,
    K: tl.constexpr, FORM: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out f32 [count, stride]: rows `ids` of a quantized weight, exactly; grid (count, units / T)."""
    begin(EARLY)
    HALVES: tl.constexpr = halves_in(FORM)
    UNITS: tl.constexpr = TILES // HALVES
    OFFSET: tl.constexpr = offset_of(FORM)
    MINIMA: tl.constexpr = has_minima(FORM)
    item = tl.program_id(0)
    row = tl.load(ids + item)
    g = row % 8
    k = tl.program_id(1) * T + tl.arange(0, T)
    unit = row // 8 * UNITS + tl.minimum(k, UNITS - 1)
    k = tl.where(k < UNITS, k, TILES)  # what is beyond the last is beyond K
    to = out + item.to(tl.int64) * stride
    tops = load_tops(scale, top, unit, scales_of(FORM))
    for half in tl.static_range(HALVES):
        tile = unit * HALVES + half
        planes = load_planes(low, high, tile, FORM)
        s0, s1, m0, m1 = load_scales(tops, scale, tile, half, scales_of(FORM))
        column = (k * HALVES + half)[:, None, None] * 128
        column += tl.arange(0, 4)[None, :, None] * 32 + tl.arange(0, 4)[None, None, :] * 4
        first, last = levels_of(planes, FORM, 0)
        store_run(pick(first, g), pick(s0, g), pick(m0, g), to, column, K, OFFSET, MINIMA)
        store_run(pick(last, g), pick(s1, g), pick(m1, g), to, column + 16, K, OFFSET, MINIMA)
