"""Products of matrices that lie on the device as plain float32 or float16, rows of the input first."""

import triton
import triton.language as tl


@triton.jit
def linear(x, x_row, x_head, w, out, out_row, out_head, count, outer, n, k,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """out = x · wᵀ for w [n, k]; a row has `outer` vectors."""
    items = tl.load(count) * outer
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    if tl.program_id(1) * BLOCK_M >= items:
        return
    j, i = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    source = x + (m // outer).to(tl.int64) * x_row + (m % outer) * x_head
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, k, BLOCK_K):
        at = start + i
        a = tl.load(source[:, None] + at[None, :], mask=(m < items)[:, None] & (at < k)[None, :], other=0.0)
        b = tl.load(w + j.to(tl.int64)[None, :] * k + at[:, None], mask=(j < n)[None, :] & (at < k)[:, None], other=0.0)
        total = tl.dot(a.to(b.dtype), b, total, input_precision="ieee")
    target = out + (m // outer).to(tl.int64) * out_row + (m % outer) * out_head
    tl.store(target[:, None] + j[None, :], total, mask=(m < items)[:, None] & (j < n)[None, :])


@triton.jit
def experts(x, x_row, x_head, ids, ids_row, w, out, out_row, out_head, count, outer, n, k,
            BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """out[h] = x[h] · w[expert]ᵀ for each of a row's `outer` vectors; without ids, vector h has matrix h."""
    row, head = (tl.program_id(1) // outer).to(tl.int64), tl.program_id(1) % outer
    if row >= tl.load(count):
        return
    expert = head.to(tl.int64)
    if ids is not None:
        expert = tl.load(ids + row * ids_row + head).to(tl.int64)
    j, i = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, k, BLOCK_K):
        at = start + i
        v = tl.load(x + row * x_row + head * x_head + at, mask=at < k, other=0.0)
        m = tl.load(w + (expert * n + j)[:, None] * k + at[None, :],
                    mask=(j < n)[:, None] & (at < k)[None, :], other=0.0)  # fmt: skip
        total += tl.sum(m.to(tl.float32) * v[None, :], 1)
    tl.store(out + row * out_row + head * out_head + j, total, mask=j < n)


@triton.jit
def embed(ids, table, out, out_item, count, each, width, BLOCK: tl.constexpr):
    """Rows of a table, `each` ids a row."""
    item = tl.program_id(0).to(tl.int64)
    if item >= tl.load(count) * each:
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = table + tl.load(ids + item).to(tl.int64) * width + i
    tl.store(out + item * out_item + i, tl.load(source, mask=i < width, other=0.0).to(tl.float32), mask=i < width)
