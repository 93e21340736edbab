"""Eight sub-blocks side by side: a register holds one element of each.

ggml adds floats one after the other, and its bytes depend on that order. A lane that is a sub-block keeps the order,
and eight are searched at once. `spread` transposes 8 sub-blocks of n floats to n registers.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.memory import f32, pointer
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    Vec,
    constant,
    f32x8,
    fill_of,
    i32x8,
    intrinsic_call,
    op,
)
from llamina.backends.cpu.kernels.vector.transpose import transposed

BIT = ir.IntType(1)
mask8 = Vec("i1x8", BIT, 8)

greater = op(mask8, (f32x8, f32x8), lambda b, x, y: b.fcmp_ordered(">", x, y))
less = op(mask8, (f32x8, f32x8), lambda b, x, y: b.fcmp_ordered("<", x, y))
less_or_equal = op(mask8, (f32x8, f32x8), lambda b, x, y: b.fcmp_ordered("<=", x, y))
equal = op(mask8, (f32x8, f32x8), lambda b, x, y: b.fcmp_ordered("==", x, y))
differs = op(mask8, (f32x8, f32x8), lambda b, x, y: b.fcmp_unordered("!=", x, y))
choose = op(f32x8, (mask8, f32x8, f32x8), lambda b, m, x, y: b.select(m, x, y))
choose_i32 = op(i32x8, (mask8, i32x8, i32x8), lambda b, m, x, y: b.select(m, x, y))
some = op(types.boolean, (mask8,), lambda b, m: b.icmp_unsigned("!=", b.bitcast(m, ir.IntType(8)), ir.IntType(8)(0)))
bits_of = op(types.intp, (mask8,), lambda b, m: b.zext(b.bitcast(m, ir.IntType(8)), I64))
"""The lanes as bits, the first in the lowest."""
trunc_f32 = op(f32x8, (f32x8,), lambda b, x: intrinsic_call(b, "llvm.trunc.v8f32", f32x8.ir, [x]))
sqrt_f32 = op(f32x8, (f32x8,), lambda b, x: intrinsic_call(b, "llvm.sqrt.v8f32", f32x8.ir, [x]))


def _nearest(b: Any, x: Any) -> Any:
    """ggml's rounding: the lower bits of x + 1.5 * 2**23, also where x is too large for it."""
    shifted = b.bitcast(b.fadd(x, constant(f32x8, [12582912.0] * 8)), i32x8.ir)
    return b.sub(b.and_(shifted, constant(i32x8, [0x7FFFFF] * 8)), constant(i32x8, [0x400000] * 8))


nearest = op(i32x8, (f32x8,), _nearest)


def _bounded(b: Any, x: Any, low: Any, high: Any) -> Any:
    x = b.select(b.icmp_signed("<", x, high), x, high)
    return b.select(b.icmp_signed(">", x, low), x, low)


bounded = op(i32x8, (i32x8, i32x8, i32x8), _bounded)
"""x, at least `low` and at most `high`."""


def _nearest_one(b: Any, x: Any) -> Any:
    shifted = b.bitcast(b.fadd(x, ir.Constant(ir.FloatType(), 12582912.0)), I32)
    return b.sext(b.sub(b.and_(shifted, I32(0x7FFFFF)), I32(0x400000)), I64)


nearest_one = op(types.intp, (types.float32,), _nearest_one)


def _load_bytes(b: Any, address: Any) -> Any:
    raw = b.load(pointer(b, address, ir.VectorType(ir.IntType(8), 8)))
    raw.align = 1
    return b.zext(raw, i32x8.ir)


def _store_bytes(b: Any, address: Any, value: Any) -> None:
    eight = ir.VectorType(ir.IntType(8), 8)
    b.store(b.trunc(value, eight), pointer(b, address, eight)).align = 1


load_bytes = op(i32x8, (types.intp,), _load_bytes)
store_bytes = op(types.void, (types.intp, i32x8), _store_bytes)
"""Eight numbers of a byte each."""


def _spread(n: int) -> Any:
    def body(b: Any, source: Any, target: Any) -> None:
        for first in range(0, n, 8):
            rows = []
            for lane in range(8):
                rows.append(b.load(pointer(b, b.add(source, I64(4 * (n * lane + first))), f32x8.ir)))
                rows[-1].align = 1
            for i, column in enumerate(transposed(b, rows)):
                b.store(column, pointer(b, b.add(target, I64(32 * (first + i))), f32x8.ir)).align = 4

    return op(types.void, (types.intp, types.intp), body)


spread_16, spread_32 = _spread(16), _spread(32)


def spread_of(n: int) -> Any:
    """`spread(source, target)`: floats of 8 sub-blocks in order → n registers."""
    return {16: spread_16, 32: spread_32}[n]


TINY = fill_of(f32x8, 1e-15)
"""A sub-block whose largest number is below this is zero."""


@device
def sum_squares(x, n):
    total = np.float32(0)
    for i in range(n):
        v = f32(x + 4 * i)
        total += v * v
    return total
