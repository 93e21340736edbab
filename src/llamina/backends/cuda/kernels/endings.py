"""Kernels that end in what products read (`activations`), so that nobody writes float32 first and reads it again."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.activations import power_below, store_f16, store_q8
from llamina.backends.cuda.kernels.attention import merged
from llamina.backends.cuda.kernels.early import begin
from llamina.backends.cuda.kernels.elementwise import activation
from llamina.backends.cuda.kernels.kv_cache import hadamard, store_lines


@triton.jit
def store_activation(v, row, at, x8, xd, xs, xf, xe, KIND: tl.constexpr, PADDED: tl.constexpr):
    """Columns `at` [BLOCK] of a row as 8-bit blocks, or, all of them at once, as float16 in fragment order."""
    BLOCK: tl.constexpr = v.shape[0]
    if KIND == "q8":
        block = tl.min(at, 0) // 32 + tl.arange(0, BLOCK // 32)
        store_q8(tl.reshape(v, [BLOCK // 32, 32]), row, block, x8, xd, xs, block < PADDED // 32, PADDED)
    else:
        power, inverse = power_below(tl.max(tl.abs(v), 0))
        tl.store(xe + row, power + tl.sum(v * 0.0, 0))
        store_f16(v, row, at, inverse, xf, at < PADDED, PADDED)


@triton.jit
def normalize(x, x_row, out, out_row, w, bias, x8, xd, xs, xf, xe, count, inner, eps,
              CENTRE: tl.constexpr, KIND: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
              EARLY: tl.constexpr):  # fmt: skip
    """RMS norm, or with CENTRE layer norm, of a whole row; `out`, weight and bias may be None."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * x_row + i, mask=i < inner, other=0.0)
    v = normalized(v, row, i, out, out_row, w, bias, inner, eps, CENTRE)
    store_activation(v, row, i, x8, xd, xs, xf, xe, KIND, PADDED)


@triton.jit
def normalized(v, row, i, out, out_row, w, bias, inner, eps, CENTRE: tl.constexpr):
    inside = i < inner
    if CENTRE:
        v = tl.where(inside, v - tl.sum(v, 0) / inner, 0.0)
    v *= 1.0 / tl.sqrt(tl.sum(v * v, 0) / inner + eps)
    if w is not None:
        v *= tl.load(w + i, mask=inside, other=0.0)
    if bias is not None:
        v += tl.load(bias + i, mask=inside, other=0.0)
    if out is not None:
        tl.store(out + row * out_row + i, v, mask=inside)
    return v


@triton.jit
def combine_and_normalize(parts, powers, gain, tokens, product_bias, add, x, out, out_row, w, bias, x8, xd, xs, xf, xe,
                          count, inner, eps, SPLIT: tl.constexpr, CENTRE: tl.constexpr, KIND: tl.constexpr,
                          PADDED: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """`gemm.combine` into x, and the norm of that."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.arange(0, BLOCK)
    inside = i < inner
    v = tl.load(parts + row * inner + i, mask=inside, other=0.0)
    for part in tl.static_range(1, SPLIT):
        v += tl.load(parts + (part * tokens + row) * inner + i, mask=inside, other=0.0)
    v *= tl.load(powers + row) / gain
    if product_bias is not None:
        v += tl.load(product_bias + i, mask=inside, other=0.0)
    if add is not None:
        v += tl.load(add + row * inner + i, mask=inside, other=0.0)
    tl.store(x + row * inner + i, v, mask=inside)
    v = normalized(v, row, i, out, out_row, w, bias, inner, eps, CENTRE)
    store_activation(v, row, i, x8, xd, xs, xf, xe, KIND, PADDED)


@triton.jit
def gated(x, x_row, y, y_row, x8, xd, xs, xf, xe, count, inner,
          GATE: tl.constexpr, KIND: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
          EARLY: tl.constexpr):  # fmt: skip
    """activation(x) × y; BLOCK columns of a row, which must be all of them where KIND is "f16"."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + row * x_row + i, mask=i < inner, other=0.0)
    b = tl.load(y + row * y_row + i, mask=i < inner, other=0.0)
    if GATE == "swiglu_oai":
        v = activation(tl.minimum(a, 7.0), "gelu_quick") * (tl.minimum(tl.maximum(b, -7.0), 7.0) + 1.0)
    else:
        v = activation(a, GATE) * b
    store_activation(tl.where(i < inner, v, 0.0), row, i, x8, xd, xs, xf, xe, KIND, PADDED)


@triton.jit
def merge(partials, x8, xd, xs, count, heads, value_dim,
          SPLITS: tl.constexpr, PADDED: tl.constexpr, VALUE: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """`attention.merge` into 8-bit blocks; heads are whole blocks."""
    begin(EARLY)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    result = merged(partials, row * heads + head, value_dim, SPLITS, VALUE)
    block = tl.arange(0, VALUE // 32)
    mask = block < value_dim // 32
    store_q8(tl.reshape(result, [VALUE // 32, 32]), row, head * (value_dim // 32) + block, x8, xd, xs, mask, PADDED)


@triton.jit
def turn_and_keep(q, q_row, q_head, k, k_row, k_head, v, v_row, v_head, angles, out, out_row, out_head, keys, values,
                  tables, tables_row, positions, sequences, count, heads, kv_heads, key_dim, value_dim, pairs, near,
                  far, KIND: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, HADAMARD: tl.constexpr,
                  EARLY: tl.constexpr):  # fmt: skip
    """Rotate q and k; q goes to `out`, k and v into their sequence's page. A program takes HEADS heads of a token.

    With HADAMARD elements, all three are rotated by such matrices besides.
    """
    begin(EARLY)
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    position = tl.load(positions + row)
    page = tl.load(tables + tl.load(sequences + row) * tables_row + position // 16).to(tl.int64)
    i = tl.arange(0, BLOCK)
    some = tl.arange(0, HEADS)
    queries = (heads + HEADS - 1) // HEADS
    others = (kv_heads + HEADS - 1) // HEADS
    if number < queries + others:
        turned = i < 2 * pairs
        second = tl.where(near == 2, i % 2 == 1, i >= pairs)
        pair = tl.where(near == 2, i // 2, tl.where(second, i - pairs, i))
        cos = tl.load(angles + row * 2 * pairs + pair, mask=turned, other=1.0)[None, :]
        sin = tl.load(angles + row * 2 * pairs + pairs + pair, mask=turned, other=0.0)[None, :]
        head = number * HEADS + some
        inside = (head < heads)[:, None] & (i < key_dim)[None, :]
        source = q + row * q_row + head * q_head
        if number >= queries:
            head = (number - queries) * HEADS + some
            inside = (head < kv_heads)[:, None] & (i < key_dim)[None, :]
            source = k + row * k_row + head * k_head
        a = tl.load(source[:, None] + i[None, :], mask=inside, other=0.0)
        b = tl.load(
            source[:, None] + (i + tl.where(second, -far, far))[None, :], mask=inside & turned[None, :], other=0.0
        )
        y = tl.where(turned[None, :], tl.where(second[None, :], b * sin + a * cos, a * cos - b * sin), a)
        if HADAMARD:
            y = tl.reshape(hadamard(tl.reshape(y, [HEADS * BLOCK]), HADAMARD), [HEADS, BLOCK])
        if number < queries:
            tl.store(out + row * out_row + (head * out_head)[:, None] + i[None, :], y, mask=inside)
        else:
            line = (page * kv_heads + head) * 16 + position % 16
            store_lines(keys, line, y, head < kv_heads, key_dim, KIND)
    else:
        head = (number - queries - others) * HEADS + some
        inside = (head < kv_heads)[:, None] & (i < value_dim)[None, :]
        y = tl.load(v + row * v_row + (head * v_head)[:, None] + i[None, :], mask=inside, other=0.0)
        if HADAMARD:
            y = tl.reshape(hadamard(tl.reshape(y, [HEADS * BLOCK]), HADAMARD), [HEADS, BLOCK])
        line = (page * kv_heads + head) * 16 + position % 16
        store_lines(values, line, y, head < kv_heads, value_dim, KIND)
