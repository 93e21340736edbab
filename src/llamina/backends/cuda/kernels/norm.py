"""What goes over a whole head: norms and softmax. A program takes one head of one row."""

import triton
import triton.language as tl


@triton.jit
def normalize(x, x_row, x_head, out, out_row, out_head, w, bias, w_head, count, inner, eps,
              CENTRE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """RMS norm, or with CENTRE layer norm; weight and bias may be None."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if row >= tl.load(count):
        return
    x += row * x_row + head * x_head
    out += row * out_row + head * out_head
    i = tl.arange(0, BLOCK)
    mean = 0.0
    if CENTRE:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, inner, BLOCK):
            total += tl.load(x + start + i, mask=start + i < inner, other=0.0)
        mean = tl.sum(total, 0) / inner
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, inner, BLOCK):
        v = tl.where(start + i < inner, tl.load(x + start + i, mask=start + i < inner, other=0.0) - mean, 0.0)
        total += v * v
    factor = 1.0 / tl.sqrt(tl.sum(total, 0) / inner + eps)
    for start in range(0, inner, BLOCK):
        inside = start + i < inner
        v = (tl.load(x + start + i, mask=inside, other=0.0) - mean) * factor
        if w is not None:
            v *= tl.load(w + head * w_head + start + i, mask=inside, other=0.0)
        if bias is not None:
            v += tl.load(bias + head * w_head + start + i, mask=inside, other=0.0)
        tl.store(out + start + i, v, mask=inside)


@triton.jit
def softmax(x, x_row, x_head, out, out_row, out_head, count, inner, BLOCK: tl.constexpr):
    """Over the last dimension."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if row >= tl.load(count):
        return
    x += row * x_row + head * x_head
    out += row * out_row + head * out_head
    i = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, inner, BLOCK):
        top = tl.maximum(top, tl.load(x + start + i, mask=start + i < inner, other=float("-inf")))
    most = tl.max(top, 0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, inner, BLOCK):
        total += tl.exp(tl.load(x + start + i, mask=start + i < inner, other=float("-inf")) - most)
    whole = tl.sum(total, 0)
    for start in range(0, inner, BLOCK):
        v = tl.exp(tl.load(x + start + i, mask=start + i < inner, other=float("-inf")) - most)
        tl.store(out + start + i, v / whole, mask=start + i < inner)


@triton.jit
def sinkhorn(x, x_row, x_head, out, out_row, out_head, count, n, rounds, eps, BLOCK: tl.constexpr):
    """(n, n) → the softmax of each row, then columns and rows divided by their sums in turn, columns last."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (i < n) & (j < n)
    v = tl.load(x + row * x_row + i * x_head + j, mask=inside, other=float("-inf"))
    e = tl.where(inside, tl.exp(v - tl.where(i < n, tl.max(v, 1)[:, None], 0.0)), 0.0)
    y = tl.where(inside, e / tl.where(i < n, tl.sum(e, 1)[:, None], 1.0) + eps, 0.0)
    y = y / (tl.sum(y, 0)[None, :] + eps)
    for _ in range(1, rounds):
        y = y / (tl.sum(y, 1)[:, None] + eps)
        y = y / (tl.sum(y, 0)[None, :] + eps)
    tl.store(out + row * out_row + i * out_head + j, y, mask=inside)
