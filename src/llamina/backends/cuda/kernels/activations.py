"""Rows of float32 as products want them: 8-bit blocks for dot products, or float16 in fragment order for tensor
cores.

Fragment order: within each 128 columns, column 32 t + 4 s + 2 e + h is at 16 s + 8 h + 2 t + e. So what one lane
holds of a weight's tile, a run of 32 columns (t), are its elements of eight k-steps (s) of the tensor cores, four
to a step.

A row that holds NaN or infinity has NaN as a scale, so that all products of it are NaN.
"""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin


@triton.jit
def fragment(k):
    """Where column k is in fragment order."""
    b = k & 3
    return (k & -128) + ((k >> 2) & 7) * 16 + (b & 1) * 8 + ((k >> 5) & 3) * 2 + (b >> 1)


@triton.jit
def blocks_of(v):
    """Blocks v [B, 32] f32 as 8-bit numbers i32 [B, 32] and their scales [B]."""
    biggest = tl.max(tl.abs(v), 1)
    spoilt = tl.sum(v * 0.0, 1)  # NaN if any element is NaN or infinite
    inverse = 127.0 / tl.where(biggest > 0, biggest, 1.0)
    # Adding 1.5 · 2²³ rounds to the nearest whole number, which is then in the lower bits.
    q = (v * inverse[:, None] + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
    return tl.where(tl.abs(q) <= 127, q, 0), biggest / 127.0 + spoilt


@triton.jit
def store_q8(v, row, block, x8, xd, xs, mask, PADDED: tl.constexpr):
    """Blocks v [B, 32] f32, which are blocks `block` [B] of rows `row` (one, or [B]): 8-bit numbers, scale and sums."""
    B: tl.constexpr = v.shape[0]
    q, d = blocks_of(v)
    at = row.to(tl.int64) * (PADDED // 32) + block
    tl.store(x8 + at[:, None] * 32 + tl.arange(0, 32)[None, :], q.to(tl.int8), mask=mask[:, None])
    tl.store(xd + at, d, mask=mask)
    first, last = tl.split(tl.sum(tl.reshape(q, [B, 2, 16]), 2))
    tl.store(xs + at, (first & 0xFFFF) | (last << 16), mask=mask)


@triton.jit
def power_below(biggest):
    """What a row is divided by, a power of two that leaves its largest magnitude between 1024 and 2048; its inverse."""
    exponent = (biggest.to(tl.int32, bitcast=True) >> 23) & 255
    exponent = tl.minimum(tl.maximum(exponent - 10, 1), 243)
    power = (exponent << 23).to(tl.float32, bitcast=True)
    return power, ((254 - exponent) << 23).to(tl.float32, bitcast=True)


@triton.jit
def store_f16(v, row, k, inverse, xf, mask, PADDED: tl.constexpr):
    """Columns k of a row, which are consecutive tiles, as float16 in fragment order, times the inverse of its power.

    They are brought into that order before they are stored, so that stores are wide.
    """
    BLOCK: tl.constexpr = v.shape[0]
    x = tl.reshape((v * inverse).to(tl.float16), [BLOCK // 128, 4, 8, 2, 2])  # tile t s e h
    x = tl.reshape(tl.permute(x, (0, 2, 4, 1, 3)), [BLOCK])
    tl.store(xf + row.to(tl.int64) * PADDED + k, x, mask=mask)


@triton.jit
def prepare_q8(x, x8, xd, xs, stride, K: tl.constexpr, PADDED: tl.constexpr, BLOCKS: tl.constexpr,
               EARLY: tl.constexpr):  # fmt: skip
    """x f32 [tokens, stride] → 8-bit blocks; grid (tokens, padded / (32 · BLOCKS))."""
    begin(EARLY)
    row = tl.program_id(0)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    k = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    v = tl.load(x + row.to(tl.int64) * stride + k, mask=k < K, other=0.0)
    store_q8(v, row, block, x8, xd, xs, block < PADDED // 32, PADDED)


@triton.jit
def prepare_f16(x, xf, xe, stride, K: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """x f32 [tokens, stride] → float16 in fragment order; grid (tokens,)."""
    row = tl.program_id(0)
    at = x + row.to(tl.int64) * stride
    most = tl.zeros([BLOCK], tl.float32)
    spoilt = tl.zeros([BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        v = tl.load(at + k, mask=k < K, other=0.0)
        most = tl.maximum(most, tl.abs(v))
        spoilt += v * 0.0
    power, inverse = power_below(tl.max(most, 0))
    tl.store(xe + row, power + tl.sum(spoilt, 0))
    for start in range(0, PADDED, BLOCK):
        k = start + tl.arange(0, BLOCK)
        v = tl.load(at + k, mask=k < K, other=0.0)
        store_f16(v, row, k, inverse, xf, k < PADDED, PADDED)
