"""Scalars at addresses: kernels see integers, not arrays, so nothing is boxed, counted or checked at run time."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

I64 = ir.IntType(64)


def pointer(builder: Any, address: Any, pointee: ir.Type) -> Any:
    """An integer address as a pointer to `pointee`."""
    return builder.inttoptr(address, pointee.as_pointer())


def _reader(result: Any, stored: ir.Type, convert: str | None = None) -> Any:
    @intrinsic
    def peek(ctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(pointer(builder, args[0], stored))
            value.align = 1
            wanted = context.get_value_type(result)
            return getattr(builder, convert)(value, wanted) if convert else value

        return result(types.intp), codegen

    return peek


def _writer(source: Any, stored: ir.Type, convert: str | None = None) -> Any:
    @intrinsic
    def poke(ctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = getattr(builder, convert)(args[1], stored) if convert else args[1]
            builder.store(value, pointer(builder, args[0], stored)).align = 1
            return context.get_dummy_value()

        return types.void(types.intp, source), codegen

    return poke


u8 = _reader(types.intp, ir.IntType(8), "zext")
i8 = _reader(types.intp, ir.IntType(8), "sext")
u16 = _reader(types.intp, ir.IntType(16), "zext")
i16 = _reader(types.intp, ir.IntType(16), "sext")
i32 = _reader(types.intp, ir.IntType(32), "sext")
u32 = _reader(types.intp, ir.IntType(32), "zext")
i64 = _reader(types.intp, I64)
f16 = _reader(types.float32, ir.HalfType(), "fpext")
f32 = _reader(types.float32, ir.FloatType())
f64 = _reader(types.float64, ir.DoubleType())


@intrinsic
def bf16(ctx: Any, address: Any) -> Any:
    """A bfloat16, which is the upper half of a float32."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        raw = builder.load(pointer(builder, args[0], ir.IntType(16)))
        raw.align = 1
        wide = builder.shl(builder.zext(raw, ir.IntType(32)), ir.IntType(32)(16))
        return builder.bitcast(wide, ir.FloatType())

    return types.float32(types.intp), codegen


def round_bf16(b: Any, value: Any) -> Any:
    """Bits of bfloat16, of one float or a register of them: rounded to nearest, ties to even; NaN stays NaN."""
    lanes = getattr(value.type, "count", 0)

    def integers(bits: int) -> ir.Type:
        return ir.VectorType(ir.IntType(bits), lanes) if lanes else ir.IntType(bits)

    def number(n: int) -> Any:
        return ir.Constant(integers(32), [n] * lanes if lanes else n)

    bits = b.bitcast(value, integers(32))
    upper = b.lshr(bits, number(16))
    rounded = b.lshr(b.add(bits, b.add(number(0x7FFF), b.and_(upper, number(1)))), number(16))
    nan = b.fcmp_unordered("uno", value, value)
    return b.trunc(b.select(nan, b.or_(upper, number(0x40)), rounded), integers(16))


@intrinsic
def set_bf16(ctx: Any, address: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(round_bf16(builder, args[1]), pointer(builder, args[0], ir.IntType(16))).align = 1
        return context.get_dummy_value()

    return types.void(types.intp, types.float32), codegen


set_f32 = _writer(types.float32, ir.FloatType())
set_f16 = _writer(types.float32, ir.HalfType(), "fptrunc")
set_i8 = _writer(types.intp, ir.IntType(8), "trunc")
set_i16 = _writer(types.intp, ir.IntType(16), "trunc")
set_i64 = _writer(types.intp, I64)
set_i32 = _writer(types.intp, ir.IntType(32), "trunc")


def _prefetcher(locality: int) -> Any:
    @intrinsic
    def prefetch(ctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            i32t, i8p = ir.IntType(32), ir.IntType(8).as_pointer()
            fn_type = ir.FunctionType(ir.VoidType(), [i8p, i32t, i32t, i32t])
            fn = cgutils.get_or_insert_function(builder.module, fn_type, "llvm.prefetch.p0")
            builder.call(fn, [pointer(builder, args[0], ir.IntType(8)), i32t(0), i32t(locality), i32t(1)])
            return context.get_dummy_value()

        return types.void(types.intp), codegen

    return prefetch


prefetch, prefetch_l2 = _prefetcher(3), _prefetcher(2)
"""Ask for the cache line at an address, to the first or to the second level; a hint that may point anywhere."""


def stack_of(nbytes: int) -> Any:
    """An intrinsic that gives the address of `nbytes` of the calling function's stack, 32-byte aligned."""

    @intrinsic
    def stack(ctx: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            with builder.goto_entry_block():  # not cgutils.alloca_once: it zeroes, which takes LLVM seconds
                slot = builder.alloca(ir.ArrayType(ir.IntType(8), nbytes))
            slot.align = 32
            return builder.ptrtoint(slot, I64)

        return types.intp(), codegen

    return stack
