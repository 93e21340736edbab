"""Kernels that end in what products read (`activations`), so that nobody writes float32 first and reads it again."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.activations import power_below, store_f16, store_q8
from llamina.backends.cuda.kernels.attention import merged
from llamina.backends.cuda.kernels.early import begin
from llamina.backends.cuda.kernels.elementwise import activation


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
    inside = i < inner
    v = tl.load(x + row * x_row + i, mask=inside, other=0.0)
    if CENTRE:
        v = tl.where(inside, v - tl.sum(v, 0) / inner, 0.0)
    v *= 1.0 / tl.sqrt(tl.sum(v * v, 0) / inner + eps)
    if w is not None:
        v *= tl.load(w + i, mask=inside, other=0.0)
    if bias is not None:
        v += tl.load(bias + i, mask=inside, other=0.0)
    if out is not None:
        tl.store(out + row * out_row + i, v, mask=inside)
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
                  far, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Rotate q and k; q goes to `out`, k and v into their sequence's page. A program takes one head of a token."""
    begin(EARLY)
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    position = tl.load(positions + row)
    page = tl.load(tables + tl.load(sequences + row) * tables_row + position // 16).to(tl.int64)
    i = tl.arange(0, BLOCK)
    if number < heads + kv_heads:
        turned = i < 2 * pairs
        second = tl.where(near == 2, i % 2 == 1, i >= pairs)
        pair = tl.where(near == 2, i // 2, tl.where(second, i - pairs, i))
        cos = tl.load(angles + row * 2 * pairs + pair, mask=turned, other=1.0)
        sin = tl.load(angles + row * 2 * pairs + pairs + pair, mask=turned, other=0.0)
        source = q + row * q_row + number * q_head
        if number >= heads:
            source = k + row * k_row + (number - heads) * k_head
        a = tl.load(source + i, mask=i < key_dim, other=0.0)
        b = tl.load(source + i + tl.where(second, -far, far), mask=turned, other=0.0)
        y = tl.where(turned, tl.where(second, b * sin + a * cos, a * cos - b * sin), a)
        if number < heads:
            tl.store(out + row * out_row + number * out_head + i, y, mask=i < key_dim)
        else:
            line = (page * kv_heads + number - heads) * 16 + position % 16
            tl.store(keys + line * key_dim + i, y.to(keys.dtype.element_ty), mask=i < key_dim)
    else:
        head = number - heads - kv_heads
        y = tl.load(v + row * v_row + head * v_head + i, mask=i < value_dim, other=0.0)
        line = (page * kv_heads + head) * 16 + position % 16
        tl.store(values + line * value_dim + i, y.to(values.dtype.element_ty), mask=i < value_dim)
