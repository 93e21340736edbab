"""Numbers of other types, read as float32 and written from it: eight at a time, or as many as a register holds."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX512
from llamina.backends.cpu.kernels.vector.memory import pointer, round_bf16
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I8,
    I32,
    Vec,
    f32x8,
    i16x8,
    loader,
    op,
    part_loader,
    part_storer,
    storer,
)

WIDE = 16 if HAS_AVX512 else 8
wide = Vec(f"f32x{WIDE}", F32, WIDE) if WIDE != 8 else f32x8
"""The widest register of float32."""
load_wide, load_wide_part = loader(wide), part_loader(wide)
store_wide, store_wide_part = storer(wide), part_storer(wide)


def _raw(b: Any, address: Any, element: ir.Type, n: int) -> Any:
    raw = b.load(pointer(b, address, ir.VectorType(element, n)))
    raw.align = 1
    return raw


def _ints(vec: Vec) -> ir.VectorType:
    return ir.VectorType(I32, vec.ir.count)


def _all(vec: Vec, value: int) -> ir.Constant:
    return ir.Constant(_ints(vec), [value] * vec.ir.count)


def f16_loader(vec: Vec) -> Any:
    """(address) → float16 numbers."""
    return op(vec, (types.intp,), lambda b, at: b.fpext(_raw(b, at, ir.HalfType(), vec.ir.count), vec.ir))


def bf16_loader(vec: Vec) -> Any:
    """(address) → bfloat16 numbers."""

    def body(b: Any, address: Any) -> Any:
        raw = b.zext(_raw(b, address, ir.IntType(16), vec.ir.count), _ints(vec))
        return b.bitcast(b.shl(raw, _all(vec, 16)), vec.ir)

    return op(vec, (types.intp,), body)


def i8_loader(vec: Vec) -> Any:
    """(address) → signed bytes."""
    return op(vec, (types.intp,), lambda b, at: b.sitofp(b.sext(_raw(b, at, I8, vec.ir.count), _ints(vec)), vec.ir))


def u4_loader(vec: Vec) -> Any:
    """(address, high) → low or high halves of bytes, 8 less than they say."""

    def body(b: Any, address: Any, high: Any) -> Any:
        undef = ir.Constant(_ints(vec), ir.Undefined)
        shift = b.insert_element(undef, b.mul(b.trunc(high, I32), I32(4)), I32(0))
        raw = b.zext(_raw(b, address, I8, vec.ir.count), _ints(vec))
        nibbles = b.and_(b.lshr(raw, b.shuffle_vector(shift, undef, _all(vec, 0))), _all(vec, 15))
        return b.sitofp(b.sub(nibbles, _all(vec, 8)), vec.ir)

    return op(vec, (types.intp, types.intp), body)


def _store_f16(b: Any, address: Any, value: Any) -> None:
    half8 = ir.VectorType(ir.HalfType(), 8)
    b.store(b.fptrunc(value, half8), pointer(b, address, half8)).align = 1


def _store_bf16(b: Any, address: Any, value: Any) -> None:
    b.store(round_bf16(b, value), pointer(b, address, i16x8.ir)).align = 1


def _store_two_bf16(b: Any, rounded_at: Any, left_at: Any, value: Any) -> None:
    rounded = round_bf16(b, value)
    whole = b.bitcast(b.shl(b.zext(rounded, _ints(f32x8)), _all(f32x8, 16)), f32x8.ir)
    for bits, address in ((rounded, rounded_at), (round_bf16(b, b.fsub(value, whole)), left_at)):
        b.store(bits, pointer(b, address, i16x8.ir)).align = 1


def _store_two_f16(b: Any, rounded_at: Any, left_at: Any, value: Any) -> None:
    half8 = ir.VectorType(ir.HalfType(), 8)
    rounded = b.fptrunc(value, half8)
    left = b.fptrunc(b.fsub(value, b.fpext(rounded, f32x8.ir)), half8)
    for halves, address in ((rounded, rounded_at), (left, left_at)):
        b.store(halves, pointer(b, address, half8)).align = 1


load_f16, load_bf16 = f16_loader(f32x8), bf16_loader(f32x8)
store_f16 = op(types.void, (types.intp, f32x8), _store_f16)
store_bf16 = op(types.void, (types.intp, f32x8), _store_bf16)
store_two_bf16, store_two_f16 = (
    op(types.void, (types.intp, types.intp, f32x8), body) for body in (_store_two_bf16, _store_two_f16)
)
"""Numbers as bfloat16 or float16, and what rounding left of them as such numbers, too."""
