"""Items of a mixture of experts in the order of their experts, so that a block of them shares a matrix."""

import triton
import triton.language as tl


@triton.jit
def group(expert, order, starts, count, BLOCK: tl.constexpr):
    """expert i32 [count] → order i32 [count]: items by expert, those of one in order; starts i32 [experts + 1].

    Grid (experts,).
    """
    e = tl.program_id(0)
    before = 0
    for at in range(0, count, BLOCK):
        i = at + tl.arange(0, BLOCK)
        ids = tl.load(expert + i, mask=i < count, other=1 << 30)
        before += tl.sum((ids < e).to(tl.int32), 0)
    tl.store(starts + e, before)
    for at in range(0, count, BLOCK):
        i = at + tl.arange(0, BLOCK)
        mine = (tl.load(expert + i, mask=i < count, other=1 << 30) == e).to(tl.int32)
        tl.store(order + before + tl.cumsum(mine, 0) - 1, i, mask=mine > 0)
        before += tl.sum(mine, 0)
    if e == tl.num_programs(0) - 1:
        tl.store(starts + e + 1, before)
