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
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, PARTS: tl.constexpr,
    STAGES: tl.constexpr, SWEEP: tl.constexpr, POWERS: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
    EXPERTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out [count, N] = x · wᵀ (+ add) (+ bias), BN rows of w by BM tokens a program; an expert has `height` rows of w.

    Grid (row blocks · token blocks, 1, PARTS). Columns are summed in SPLIT parts, as `gemm.gemm` sums them: by PARTS = SPLIT
    programs (`combine` adds up), or by one. SWEEP row blocks of a column of token blocks are neighbours, so that they share x.
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
        row = tl.load(source + m, mask=here, other=0)
    n = block * BN + tl.arange(0, BN)
    wp = low + (expert * height + tl.minimum(n, N - 1)).to(tl.int64)[:, None] * K
    xp = x + row.to(tl.int64)[:, None] * K
    STEPS: tl.constexpr = (K + BK - 1) // BK
    UNIT: tl.constexpr = 128 // BK if BK < 128 else 1  # parts end where tiles do
    TILES: tl.constexpr = STEPS // UNIT
    part = tl.program_id(2)
    total = tl.zeros([BN, BM], tl.float32)
    for p in tl.static_range(SPLIT // PARTS):
        begin = (part + p) * TILES // SPLIT * UNIT
        end = (part + p + 1) * TILES // SPLIT * UNIT
        if SPLIT == 1:
            end = STEPS
        acc = tl.zeros([BN, BM], tl.float32)
        for i in tl.range(begin, end, num_stages=STAGES):
            k = i * BK + tl.arange(0, BK)[None, :]
            if K % BK:
                a = tl.load(wp + k, mask=k < K, other=0.0)
                b = tl.load(xp + k, mask=here[:, None] & (k < K), other=0.0)
            else:
                a = tl.load(wp + k)
                b = tl.load(xp + k, mask=here[:, None], other=0.0)
            acc = tl.dot(a, tl.trans(b), acc, input_precision="tf32x3")
        if p == 0:
            total = acc
        else:
            total += acc
    if PARTS > 1:
        inside = (n < N)[:, None] & here[None, :]
        at = m[None, :].to(tl.int64) * N + n[:, None]
        tl.store(out + part.to(tl.int64) * count * N + at, total, mask=inside)
    else:
        finish(total, n, m, row, here, xe, out, add, bias, N, gain, POWERS, ADD, BIAS)

