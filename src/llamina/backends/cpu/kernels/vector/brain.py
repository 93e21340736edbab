"""bfloat16 numbers: registers of 32 of them, multiplied by pairs where the CPU has an instruction for that."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I16,
    I32,
    Vec,
    f32x8,
    fill_of,
    i32x8,
    intrinsic_call,
    loader,
    op,
    storer,
)

pairs, f32x16 = Vec("i32x16", I32, 16), Vec("f32x16", F32, 16)
I16X32 = ir.VectorType(I16, 32)

load_pairs, store_pairs = loader(pairs), storer(pairs)
load_sums, zero_sums = loader(f32x16), fill_of(f32x16, 0.0)


def lower_add_pairs(b: Any, w: Any, x: Any, total: Any) -> Any:
    """total + w₀x₀ + w₁x₁ in each lane, rounded as the CPU does; numbers too small for float32 are zeros."""
    kind = ir.FunctionType(f32x16.ir, [f32x16.ir, pairs.ir, pairs.ir])
    return b.asm(kind, "vdpbf16ps $3, $2, $0", "=v,0,v,v", [total, w, x], False)


add_pairs = op(f32x16, (pairs, pairs, f32x16), lower_add_pairs)


def _load_part(b: Any, address: Any, n: Any) -> Any:
    undef, zeros = ir.Constant(I16X32, ir.Undefined), ir.Constant(I16X32, [0] * 32)
    count = b.shuffle_vector(
        b.insert_element(undef, b.trunc(n, I16), I32(0)), undef, ir.Constant(ir.VectorType(I32, 32), [0] * 32)
    )
    mask = b.icmp_signed("<", ir.Constant(I16X32, list(range(32))), count)
    found = intrinsic_call(b, "llvm.masked.load.v32i16.p0", I16X32, [pointer(b, address, I16X32), I32(1), mask, zeros])
    return b.bitcast(found, pairs.ir)


load_pairs_part = op(pairs, (types.intp, types.intp), _load_part)
"""The first n numbers, zeros after them."""


def lower_fold(b: Any, x: Any) -> Any:
    low, high = (b.shuffle_vector(x, x, ir.Constant(i32x8.ir, list(range(n, n + 8)))) for n in (0, 8))
    return b.fadd(low, high)


fold = op(f32x8, (f32x16,), lower_fold)
"""The halves of 16 sums, added."""
