"""The choice of blocks of positions to attend to: their scores, then the best of them as bits."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.kv_cache import PAGE, load_lines


@triton.jit
def scores(q, q_row, q_head, weights, weights_row, keys, tables, tables_row, positions, sequences, out, count, heads,
           groups, blocks, block, WHOLE: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
           KIND: tl.constexpr):  # fmt: skip
    """The score of each block [rows, groups, blocks]: of its best position, or of its last one (WHOLE).

    With weights, all heads are one group, and a position's score is Σ weight × relu(q × k).
    """
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    last = tl.load(positions + row)
    b, d = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDE)
    if tl.program_id(2) * BLOCK * block > last:
        return
    table = tables + tl.load(sequences + row) * tables_row
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for j in range(block - 1 if WHOLE else 0, block):
        n = b * block + j
        page = tl.load(table + n // PAGE, mask=n <= last, other=0).to(tl.int64)
        key = load_lines(keys, page * PAGE + n % PAGE, n <= last, DIM, DIM, 0, WIDE, True, KIND).to(tl.float32)
        if weights is not None:
            score = tl.zeros([BLOCK], tl.float32)
            for h in range(heads):
                query = tl.load(q + row * q_row + h * q_head + d, mask=d < DIM, other=0.0)
                product = tl.maximum(tl.sum(key * query[None, :], 1), 0.0)
                score += tl.load(weights + row * weights_row + h) * product
        else:
            query = tl.load(q + row * q_row + group * q_head + d, mask=d < DIM, other=0.0)
            score = tl.sum(key * query[None, :], 1)
        best = tl.maximum(best, tl.where(n <= last, score, float("-inf")))
    tl.store(out + (row * groups + group) * blocks + b, best, mask=b < blocks)


@triton.jit
def ranks(scores, first, candidates, local, BLOCK: tl.constexpr):
    """Scores as whole numbers in the same order, the last `local` above all; -1 for what is no candidate."""
    b = first + tl.arange(0, BLOCK)
    s = tl.load(scores + b, mask=b < candidates, other=0.0)
    bits = tl.where(s == 0.0, 0.0, s).to(tl.int32, bitcast=True)
    rank = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64) + (1 << 31)
    rank = tl.where(b >= candidates - local, (1 << 32) - 1, rank)
    return tl.where(b < candidates, rank, -1)


@triton.jit
def choose(scores, positions, out, out_row, out_head, count, groups, blocks, words, top, block, local,
           WHOLE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Bits of the `top` best blocks, of equal ones the first; WHOLE: an unfinished block is chosen besides."""
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    n = tl.load(positions + row) + 1
    scores += (row * groups + group) * blocks
    end = (n + block - 1) // block  # one behind the last block
    candidates = end
    if WHOLE:
        candidates = n // block
    limit, bit = top.to(tl.int64) * 0, top.to(tl.int64) * 0 + (1 << 31)
    for _ in range(32):  # the largest rank that `top` candidates reach
        reached = top * 0
        for first in range(0, candidates, BLOCK):
            reached += tl.sum((ranks(scores, first, candidates, local, BLOCK) >= limit + bit).to(tl.int32), 0)
        limit = tl.where(reached >= top, limit + bit, limit)
        bit = bit // 2
    above = top * 0
    for first in range(0, candidates, BLOCK):
        above += tl.sum((ranks(scores, first, candidates, local, BLOCK) > limit).to(tl.int32), 0)
    left = top - above  # of those that reach just that rank
    w, i = tl.arange(0, BLOCK // 32), tl.arange(0, 32)
    for first in range(0, words * 32, BLOCK):
        rank = ranks(scores, first, candidates, local, BLOCK)
        equal = (rank == limit).to(tl.int32)
        before = tl.cumsum(equal, 0) - equal
        b = first + tl.arange(0, BLOCK)
        chosen = (rank > limit) | ((equal > 0) & (before < left))
        chosen = chosen | ((b >= candidates) & (b < end))
        left -= tl.sum(equal, 0)
        bits = tl.sum(tl.reshape(chosen.to(tl.int32), [BLOCK // 32, 32]) << i[None, :], 1)
        tl.store(out + row * out_row + group * out_head + first // 32 + w, bits, mask=first // 32 + w < words)
