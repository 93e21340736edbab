"""Element by element. A value is rows × outer × inner; strides are in bytes, inner elements lie side by side."""

import math
from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.vector.math import HALF, ONE, exp8, first, sigmoid8, softplus8, tanh8
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32
from llamina.backends.cpu.kernels.vector.simd import (
    f32x8,
    fill_of,
    fma,
    load_f32,
    load_f32_part,
    max_f32,
    min_f32,
    splat_f32,
    store_f32,
    store_f32_part,
)


def unary(function: Any) -> Any:
    """A kernel that applies `function(vector, constant)`."""

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, constant: float):
        c = splat_f32(np.float32(constant))
        end = first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            row, head = item // outer, item % outer
            source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
            whole = inner & ~7
            for i in range(0, whole, 8):
                store_f32(target + 4 * i, function(load_f32(source + 4 * i), c))
            if whole < inner:
                value = function(load_f32_part(source + 4 * whole, inner - whole), c)
                store_f32_part(target + 4 * whole, value, inner - whole)

    return run


def binary(function: Any) -> Any:
    """A kernel that applies `function(x, y)`; y repeats where its strides are 0 (`y_step` 0: one number per head)."""

    @kernel(writes=("out",))
    def run(thread, threads, count, x, x_row, x_head, y, y_row, y_head, y_step, out, out_row, out_head, outer, inner):
        end = first(i64(count) * outer, thread + 1, threads)
        for item in range(first(i64(count) * outer, thread, threads), end):
            row, head = item // outer, item % outer
            a, b = x + row * x_row + head * x_head, y + row * y_row + head * y_head
            target = out + row * out_row + head * out_head
            same = splat_f32(f32(b))
            whole = inner & ~7
            for i in range(0, whole, 8):
                other = load_f32(b + 4 * i) if y_step else same
                store_f32(target + 4 * i, function(load_f32(a + 4 * i), other))
            if whole < inner:
                left = inner - whole
                other = load_f32_part(b + 4 * whole, left) if y_step else same
                store_f32_part(target + 4 * whole, function(load_f32_part(a + 4 * whole, left), other), left)

    return run


GELU_A, GELU_B = fill_of(f32x8, 0.7978845608028654), fill_of(f32x8, 0.044715)
QUICK, ZERO = fill_of(f32x8, 1.702), fill_of(f32x8, 0.0)
SEVEN, MINUS_SEVEN = fill_of(f32x8, 7.0), fill_of(f32x8, -7.0)


@device
def silu(x):
    return x * sigmoid8(x)


@device
def gelu(x):
    inner = GELU_A() * x * fma(GELU_B() * x, x, ONE())
    return HALF() * x * (ONE() + tanh8(inner))


@device
def gelu_quick(x):
    return x * sigmoid8(QUICK() * x)


@device
def relu(x):
    return max_f32(x, ZERO())


@device
def relu_sqr(x):
    y = max_f32(x, ZERO())
    return y * y


@device
def tanh(x):
    return tanh8(x)


@device
def sigmoid(x):
    return sigmoid8(x)


VECTOR = {"silu": silu, "gelu": gelu, "gelu_quick": gelu_quick, "relu": relu, "relu_sqr": relu_sqr}
VECTOR |= {"tanh": tanh, "sigmoid": sigmoid, "softplus": softplus8, "exp": exp8}


@device
def gelu_erf(x):
    wide = np.float64(x)
    return np.float32(0.5 * wide * (1.0 + math.erf(wide * 0.7071067811865476)))


@device
def signed_sqrt(x):
    root = np.float32(math.sqrt(max(abs(x), np.float32(1e-6))))
    return root if x > np.float32(0) else -root if x < np.float32(0) else x


SCALAR = {"gelu_erf": gelu_erf, "signed_sqrt": signed_sqrt}


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
def add(x, y):
    return x + y


@device
def mul(x, y):
    return x * y


@device
def div(x, y):
    return x / y


@device
def softcap(x, cap):
    return tanh8(x / cap) * cap


@device
def at_most(x, limit):
    return min_f32(x, limit)


@device
def at_least(x, limit):
    return max_f32(x, limit)


@device
def swiglu_oai(x, y):
    return gelu_quick(min_f32(x, SEVEN())) * (max_f32(min_f32(y, SEVEN()), MINUS_SEVEN()) + ONE())


@device
def same(x, c):
    return x


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
        by = np.float32(1.0 + factor * math.log1p(stretches))
        for i in range(inner):
            set_f32(target + 4 * i, f32(source + 4 * i) * by)


@kernel(writes=("out",))
def fill(thread, threads, count, out, out_row, inner, constant: float):
    """The first `inner` elements of each row become the constant."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        for i in range(inner):
            set_f32(out + row * out_row + 4 * i, np.float32(constant))


@kernel(writes=("out",))
def given(thread, threads, count, where, x, x_row, rows, rows_row, out, out_row, inner):
    """A row of `rows` where there is a 1, else the row of x."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        source = rows + row * rows_row if i32(where + 4 * row) else x + row * x_row
        for i in range(inner):
            set_f32(out + row * out_row + 4 * i, f32(source + 4 * i))


@kernel(writes=("out",))
def pick(thread, threads, count, rows, x, x_row, out, out_row, inner):
    """Rows by their numbers."""
    for i in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        source, target = x + i32(rows + 4 * i) * x_row, out + i * out_row
        for j in range(inner):
            set_f32(target + 4 * j, f32(source + 4 * j))


KERNELS = {"add": binary(add), "mul": binary(mul), "div": binary(div), "scale": unary(mul), "softcap": unary(softcap)}
KERNELS |= {"at_most": unary(at_most), "at_least": unary(at_least), "temper": temper}
KERNELS |= {"copy": unary(same), "fill": fill, "given": given, "pick": pick}
KERNELS |= {f"activate.{name}": unary(_ignoring_constant(f)) for name, f in VECTOR.items()}
KERNELS |= {f"activate.{name}": scalar_unary(f) for name, f in SCALAR.items()}
KERNELS |= {f"gated.{name}": binary(_gate(f)) for name, f in VECTOR.items()}
KERNELS["gated.swiglu_oai"] = binary(swiglu_oai)
