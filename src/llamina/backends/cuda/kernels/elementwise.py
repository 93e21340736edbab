"""Element by element. Values are rows × outer × inner; a program takes BLOCK elements of one row."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin


@triton.jit
def tanh(x):
    """By exp, exact to rounding for all x."""
    e = tl.exp(-2.0 * tl.abs(x))
    small = x * (1.0 - x * x * (1.0 / 3.0 - x * x * (2.0 / 15.0 - x * x * (17.0 / 315.0))))
    large = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.1, small, large)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def activation(x, KIND: tl.constexpr):
    """One of the vocabulary's activations."""
    if KIND == "silu":
        y = x * sigmoid(x)
    elif KIND == "gelu":
        y = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif KIND == "gelu_erf":
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif KIND == "gelu_quick":
        y = x * sigmoid(1.702 * x)
    elif KIND == "relu":
        y = tl.maximum(x, 0.0)
    elif KIND == "relu_sqr":
        y = tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    elif KIND == "sigmoid":
        y = sigmoid(x)
    elif KIND == "tanh":
        y = tanh(x)
    elif KIND == "softplus":
        e = tl.exp(tl.minimum(x, 20.0))
        y = tl.where(x > 20.0, x, tl.where(e < 1e-3, e * (1.0 - e * (0.5 - e / 3.0)), tl.log(1.0 + e)))
    elif KIND == "exp":
        y = tl.exp(x)
    else:
        tl.static_assert(KIND == "signed_sqrt", "not an activation")
        y = tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0)) * tl.sqrt(tl.maximum(tl.abs(x), 1e-6))
    return y


@triton.jit
def unary(x, x_row, x_head, out, out_row, out_head, count, outer, inner, constant,
          KIND: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """out = a function of x and a constant; KIND "copy" is x itself, whatever its type."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    v = tl.load(x + row * x_row + head * x_head + at, mask=inside, other=0.0)
    if KIND == "copy":
        y = v
    elif KIND == "scale":
        y = v * constant
    elif KIND == "softcap":
        y = tanh(v / constant) * constant
    elif KIND == "at_most":
        y = tl.minimum(v, constant)
    elif KIND == "at_least":
        y = tl.maximum(v, constant)
    else:
        y = activation(v, KIND)
    tl.store(out + row * out_row + head * out_head + at, y, mask=inside)


@triton.jit
def binary(x, x_row, x_head, y, y_row, y_head, y_step, out, out_row, out_head, count, outer, inner,
           KIND: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """out = a function of x and y; y_step 0 has one y for all elements of a head."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    a = tl.load(x + row * x_row + head * x_head + at, mask=inside, other=0.0)
    b = tl.load(y + row * y_row + head * y_head + at * y_step, mask=inside, other=1.0)
    if KIND == "add":
        r = a + b
    elif KIND == "mul":
        r = a * b
    elif KIND == "div":
        r = a / b
    elif KIND == "swiglu_oai":
        r = activation(tl.minimum(a, 7.0), "gelu_quick") * (tl.minimum(tl.maximum(b, -7.0), 7.0) + 1.0)
    else:
        r = activation(a, KIND) * b
    tl.store(out + row * out_row + head * out_head + at, r, mask=inside)


@triton.jit
def temper(x, x_row, x_head, out, out_row, out_head, positions, count, outer, inner, length, factor, offset,
           BLOCK: tl.constexpr):  # fmt: skip
    """out = x × (1 + factor × ln(1 + ⌊(position + offset) / length⌋))."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    stretch = tl.floor((tl.load(positions + row).to(tl.float64) + offset) / length).to(tl.float32)
    v = tl.load(x + row * x_row + head * x_head + at, mask=inside, other=0.0)
    tl.store(out + row * out_row + head * out_head + at, v * (1.0 + factor * tl.log(1.0 + stretch)), mask=inside)


@triton.jit
def given(x, x_row, rows, rows_row, where, out, out_row, count, inner, BLOCK: tl.constexpr):
    """A row of `rows` where there is a 1, else the row of x."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(where + row) > 0:
        v = tl.load(rows + row * rows_row + i, mask=i < inner, other=0.0)
    else:
        v = tl.load(x + row * x_row + i, mask=i < inner, other=0.0)
    tl.store(out + row * out_row + i, v, mask=i < inner)


@triton.jit
def pick(x, x_row, x_head, out, out_row, out_head, wanted, count, outer, inner, BLOCK: tl.constexpr,
         EARLY: tl.constexpr):  # fmt: skip
    """Row i of out is row wanted[i] of x."""
    begin(EARLY)
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    source = tl.load(wanted + row).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    v = tl.load(x + source * x_row + head * x_head + at, mask=inside, other=0.0)
    tl.store(out + row * out_row + head * out_head + at, v, mask=inside)


@triton.jit
def pad(x, x_row, out, out_row, count, before, inner, fill, BLOCK: tl.constexpr):
    """`before` times `fill`, then x."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * x_row + i - before, mask=(i >= before) & (i < inner), other=0.0)
    tl.store(out + row * out_row + i, tl.where(i < before, fill, v), mask=i < inner)


@triton.jit
def expert_bias(x, x_row, x_head, ids, ids_row, bias, out, out_row, out_head, count, outer, inner, BLOCK: tl.constexpr):
    """out = x + the bias of each head's expert."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    head, at, inside = i // inner, i % inner, i < outer * inner
    expert = tl.load(ids + row * ids_row + head, mask=inside, other=0).to(tl.int64)
    v = tl.load(x + row * x_row + head * x_head + at, mask=inside, other=0.0)
    v += tl.load(bias + expert * inner + at, mask=inside, other=0.0)
    tl.store(out + row * out_row + head * out_head + at, v, mask=inside)
