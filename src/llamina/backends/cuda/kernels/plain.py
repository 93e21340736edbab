"""Products with weights that are numbers: float16 (also what `dequantize.image` makes) and float32."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from llamina.backends.cuda.kernels.gemm import finish, tokens_of
from llamina.backends.cuda.kernels.tiles import INTERPRETED


@triton.jit
def gemv_plain(
    x, xe, low, out, add, bias, expert, source, N, count, gain,
    K: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr, POWERS: tl.constexpr,
    ADD: tl.constexpr, BIAS: tl.constexpr, GROUPED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x [count, K] · wᵀ for M ≥ count tokens; grid (rows / ROWS, items), see `gemv.gemv`.

    POWERS: x are float16 rows that were divided by xe.
    """
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    item = tl.program_id(1)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m = tl.arange(0, M)
    here = m < count
    row = tl.where(here, m, 0)
    first = n * 0
    if GROUPED:
        first = tl.load(expert + item) * N + n * 0
        row = tl.load(source + item) + m * 0
        m = item + m * 0
        here = m >= 0
    wp = low + (first + tl.minimum(n, N - 1)).to(tl.int64)[:, None, None] * K
    xp = x + row.to(tl.int64)[None, :, None] * K
    acc = tl.zeros([ROWS, M, BK], tl.float32)
    for start in range(0, K, BK):
        k = (start + tl.arange(0, BK))[None, None, :]
        if K % BK:
            w = tl.load(wp + k, mask=k < K, other=0.0)
            v = tl.load(xp + k, mask=k < K, other=0.0)
        else:
            w = tl.load(wp + k)
            v = tl.load(xp + k)
        acc += w.to(tl.float32) * v.to(tl.float32)
    finish(tl.sum(acc, 2), n, m, row, here, xe, out, add, bias, N, gain, POWERS, ADD, BIAS)


@triton.jit
def gemm_plain(
    x, xe, low, out, add, bias, source, order, starts, N, height, count, gain,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    SWEEP: tl.constexpr, POWERS: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, EXPERTS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias), BN rows of w by BM tokens a program; an expert has `height` rows of w.

    Grid (row blocks · token blocks, 1, SPLIT). With SPLIT parts of the columns, out is [SPLIT, count, N], for
    `gemm.combine`. SWEEP row blocks of a column of token blocks are neighbours, so that they share x.
    """
    if EARLY and not INTERPRETED:
        gdc_launch_dependents()
        gdc_wait()
    blocks = tl.cdiv(N, BN)
    tokens = tl.num_programs(0) // blocks
    band = tl.program_id(0) // (SWEEP * tokens)
    size = tl.minimum(blocks - band * SWEEP, SWEEP)
    inner = tl.program_id(0) - band * SWEEP * tokens
    block = band * SWEEP + inner % size
    expert, m, here = tokens_of(inner // size, order, starts, count, BM, EXPERTS)
    row = m
    if EXPERTS > 0:
        row = tl.load(source + m)
    n = block * BN + tl.arange(0, BN)
    wp = low + (expert * height + tl.minimum(n, N - 1)).to(tl.int64)[:, None] * K + tl.arange(0, BK)[None, :]
    xp = x + row[:, None] * K + tl.arange(0, BK)[None, :]
    part = tl.program_id(2)
    TILES: tl.constexpr = (K + 127) // 128  # parts end where tiles do
    STEPS: tl.constexpr = 128 // BK
    acc = tl.zeros([BN, BM], tl.float32)
    for i in tl.range(part * TILES // SPLIT * STEPS, (part + 1) * TILES // SPLIT * STEPS, num_stages=STAGES):
        if K % 128:
            inside = (i * BK + tl.arange(0, BK) < K)[None, :]
            a = tl.load(wp + i * BK, mask=inside, other=0.0)
            b = tl.load(xp + i * BK, mask=inside, other=0.0)
        else:
            a = tl.load(wp + i * BK)
            b = tl.load(xp + i * BK)
        acc = tl.dot(a, tl.trans(b), acc, input_precision="tf32x3")
    if SPLIT > 1:
        inside = (n < N)[:, None] & here[None, :]
        at = m[None, :].to(tl.int64) * N + n[:, None]
        tl.store(out + part.to(tl.int64) * count * N + at, acc, mask=inside)
    else:
        finish(acc, n, m, row, here, xe, out, add, bias, N, gain, POWERS, ADD, BIAS)
