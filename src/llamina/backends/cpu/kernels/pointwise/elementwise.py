"""Element by element. A value is rows × outer × inner; strides are in bytes, inner elements lie side by side."""

import math
from typing import Any

import numpy as np
from numba.core import types

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.pointwise.rows import add, along, along_two, copy_row, same
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.math import exp_of, first, sigmoid_of, softplus_of, tanh_of
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32
from llamina.backends.cpu.kernels.vector.simd import (
    constant,
    fill_of,
    fma_of,
    intrinsic_call,
    math_of,
    max_of,
    min_of,
    op,
    splat_of,
)

splat, fma, larger, smaller = splat_of(wide, types.float32), fma_of(wide), max_of(wide), min_of(wide)
size, root = math_of(wide, "fabs"), math_of(wide, "sqrt")
exp, sigmoid, softplus, tanh = exp_of(wide), sigmoid_of(wide), softplus_of(wide), tanh_of(wide)
ZERO, HALF, ONE = fill_of(wide, 0.0), fill_of(wide, 0.5), fill_of(wide, 1.0)
GELU_A, GELU_B, QUICK = fill_of(wide, 0.7978845608028654), fill_of(wide, 0.044715), fill_of(wide, 1.702)
SEVEN, MINUS_SEVEN, LEAST = fill_of(wide, 7.0), fill_of(wide, -7.0), fill_of(wide, 1e-6)


def unary(function: Any) -> Any:
    """A kernel that applies `function(register, constant)`."""
    row_of = along(function)

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, constant: float):
        c = splat(np.float32(constant))
        end = first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            row, head = item // outer, item % outer
            row_of(x + row * x_row + head * x_head, out + row * out_row + head * out_head, inner, c)

    return run


def binary(function: Any) -> Any:
    """A kernel that applies `function(x, y)`; y repeats where its strides are 0 (`y_step` 0: one number per head)."""
    row_of, row_of_one = along_two(function), along(function)

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, y, y_row, y_head, y_step, out, out_row, out_head, outer, inner):
        end = first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            row, head = item // outer, item % outer
            a, b = x + row * x_row + head * x_head, y + row * y_row + head * y_head
            target = out + row * out_row + head * out_head
            if y_step:
                row_of(a, b, target, inner)
            else:
                row_of_one(a, target, inner, splat(f32(b)))

    return run


@device
def silu(x):
    return x * sigmoid(x)


@device
def gelu(x):
    inner = GELU_A() * x * fma(GELU_B() * x, x, ONE())
    return HALF() * x * (ONE() + tanh(inner))


@device
def gelu_quick(x):
    return x * sigmoid(QUICK() * x)


@device
def relu(x):
    return larger(x, ZERO())


@device
def relu_sqr(x):
    y = larger(x, ZERO())
    return y * y


def _signed(b: Any, size: Any, x: Any) -> Any:
    """A size with x's sign; x itself where it is 0 or no number."""
    signed = intrinsic_call(b, f"llvm.copysign.v{WIDE}f32", wide.ir, [size, x])
    return b.select(b.fcmp_unordered("==", x, constant(wide, [0.0] * WIDE)), x, signed)


signed = op(wide, (wide, wide), _signed)


@device
def signed_sqrt(x):
    return signed(root(larger(size(x), LEAST())), x)


VECTOR = {"silu": silu, "gelu": gelu, "gelu_quick": gelu_quick, "relu": relu, "relu_sqr": relu_sqr}
VECTOR |= {"tanh": tanh, "sigmoid": sigmoid, "softplus": softplus, "exp": exp, "signed_sqrt": signed_sqrt}


@device
def gelu_erf(x):
    y = np.float64(x)
    return np.float32(0.5 * y * (1.0 + math.erf(y * 0.7071067811865476)))


SCALAR = {"gelu_erf": gelu_erf}


def scalar_unary(function: Any) -> Any:
    """For functions without a vector form."""

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, constant: float):
        end = first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            row, head = item // outer, item % outer
            source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
            for i in range(inner):
                set_f32(target + 4 * i, function(f32(source + 4 * i)))

    return run


def _ignoring_constant(function: Any) -> Any:
    @device
    def apply(x, c):
        return function(x)

    return apply


def _gate(function: Any) -> Any:
    @device
    def apply(x, y):
        return function(x) * y

    return apply


@device
def mul(x, y):
    return x * y


@device
def div(x, y):
    return x / y


@device
def softcap(x, cap):
    return tanh(x / cap) * cap


@device
def at_most(x, limit):
    return smaller(x, limit)


@device
def at_least(x, limit):
    return larger(x, limit)


@device
def swiglu_oai(x, y):
    return gelu_quick(smaller(x, SEVEN())) * (larger(smaller(y, SEVEN()), MINUS_SEVEN()) + ONE())


@device
def constantly(x, c):
    return c


multiply_row, fill_row = along(mul), along(constantly)


@kernel(writes=("out",))
def temper(
    thread, threads, count, positions, x, x_row, x_head, out, out_row, out_head, outer, inner, length,
    factor: float, offset: float,
):  # fmt: skip
    """Rows times 1 + factor × ln(1 + ⌊(position + offset) / length⌋)."""
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        stretches = math.floor((i32(positions + 4 * row) + offset) / length)
        multiply_row(source, target, inner, splat(np.float32(1.0 + factor * math.log1p(stretches))))


@kernel(writes=("out",))
def fill(thread, threads, count, out, out_row, inner, constant: float):
    """The first `inner` elements of each row become the constant."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        target = out + row * out_row
        fill_row(target, target, inner, splat(np.float32(constant)))


@kernel(writes=("out",))
def given(thread, threads, count, where, x, x_row, rows, rows_row, out, out_row, inner):
    """A row of `rows` where there is a 1, else the row of x."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        source = rows + row * rows_row if i32(where + 4 * row) else x + row * x_row
        copy_row(source, out + row * out_row, inner)


@kernel(writes=("out",))
def pick(thread, threads, count, rows, x, x_row, out, out_row, inner):
    """Rows by their numbers."""
    for i in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        copy_row(x + i32(rows + 4 * i) * x_row, out + i * out_row, inner)


KERNELS = {"add": binary(add), "mul": binary(mul), "div": binary(div), "scale": unary(mul), "softcap": unary(softcap)}
KERNELS |= {"at_most": unary(at_most), "at_least": unary(at_least), "temper": temper}
KERNELS |= {"copy": unary(same), "fill": fill, "given": given, "pick": pick}
KERNELS |= {f"activate.{name}": unary(_ignoring_constant(f)) for name, f in VECTOR.items()}
KERNELS |= {f"activate.{name}": scalar_unary(f) for name, f in SCALAR.items()}
KERNELS |= {f"gated.{name}": binary(_gate(f)) for name, f in VECTOR.items()}
KERNELS["gated.swiglu_oai"] = binary(swiglu_oai)
