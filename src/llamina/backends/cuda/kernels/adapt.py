"""What adapters add to the products of a matrix: scale × b·(a·x), for the rows of requests that use them.

`table` has four numbers for each slot: the addresses of a and b, the rank (0: nothing there), and the scale's bits.
"""

import triton
import triton.language as tl

RANKS = tl.constexpr(16)  # of a pair that are computed at a time


@triton.jit
def adapt(x, x_row, x_head, ids, ids_row, out, out_row, out_head, table, wanted, sequences, positions, starts, slots,
          scales, since, count, inner, k, EMBED: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """out += what each adapter of the row's sequence adds. EMBED: x is a token's id, and a has a row for each."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if row >= tl.load(count):
        return
    token = row
    if wanted is not None:
        token = tl.load(wanted + row).to(tl.int64)
    sequence, position = tl.load(sequences + token), tl.load(positions + token)
    expert = 0
    if ids is not None:
        expert = tl.load(ids + row * ids_row + head).to(tl.int64)
    o = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    r, j = tl.arange(0, RANKS), tl.arange(0, BLOCK_K)
    target = out + row * out_row + head * out_head + o
    for n in range(tl.load(starts + sequence), tl.load(starts + sequence + 1)):
        entry = table + tl.load(slots + n) * 4
        rank = tl.load(entry + 2)
        if (rank > 0) & (position >= tl.load(since + n)):
            a = tl.load(entry).to(tl.pointer_type(tl.float32))
            b = tl.load(entry + 1).to(tl.pointer_type(tl.float32)) + expert * inner * rank
            total = tl.zeros([BLOCK], tl.float32)
            for first in range(0, rank, RANKS):
                ranks = first + r
                if EMBED:
                    h = tl.load(a + tl.load(x + row).to(tl.int64) * rank + ranks, mask=ranks < rank, other=0.0)
                else:
                    h = tl.zeros([RANKS], tl.float32)
                    for start in range(0, k, BLOCK_K):
                        inside = start + j < k
                        v = tl.load(x + row * x_row + head * x_head + start + j, mask=inside, other=0.0)
                        m = tl.load(a + ((expert * rank + ranks) * k)[:, None] + (start + j)[None, :],
                                    mask=(ranks < rank)[:, None] & inside[None, :], other=0.0)  # fmt: skip
                        h += tl.sum(m * v[None, :], 1)
                m = tl.load(b + o[:, None] * rank + ranks[None, :],
                            mask=(o < inner)[:, None] & (ranks < rank)[None, :], other=0.0)  # fmt: skip
                total += tl.sum(m * h[None, :], 1)
            bits = tl.load(entry + 3).to(tl.float64, bitcast=True)
            factor = (tl.load(scales + n).to(tl.float64) * bits).to(tl.float32)
            tl.store(target, tl.load(target, mask=o < inner, other=0.0) + factor * total, mask=o < inner)
