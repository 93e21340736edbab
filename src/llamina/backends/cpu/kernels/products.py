"""Products of 8-bit integers, and the ways block formats pack their parts into bytes."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.memory import pointer
from llamina.backends.cpu.kernels.simd import (
    HAS_AVX2,
    I32,
    I64,
    constant,
    fill_of,
    i8x16,
    i8x32,
    i16x16,
    i32x4,
    i32x8,
    intrinsic_call,
    op,
)


def _extend(b: Any, x: Any, lanes: list[int], signed: bool) -> Any:
    picked = b.shuffle_vector(x, ir.Constant(i8x32.ir, ir.Undefined), ir.Constant(i16x16.ir.__class__(I32, 16), lanes))
    return b.sext(picked, i16x16.ir) if signed else b.zext(picked, i16x16.ir)


def _mul_u8_i8(b: Any, u: Any, s: Any) -> Any:
    """i16 sums of neighbouring products; the caller keeps them within 16 bits."""
    if HAS_AVX2:
        return intrinsic_call(b, "llvm.x86.avx2.pmadd.ub.sw", i16x16.ir, [u, s])
    even, odd = list(range(0, 32, 2)), list(range(1, 32, 2))
    low = b.mul(_extend(b, u, even, False), _extend(b, s, even, True))
    return b.add(low, b.mul(_extend(b, u, odd, False), _extend(b, s, odd, True)))


def _madd(b: Any, x: Any, y: Any) -> Any:
    """i32 sums of neighbouring i16 products."""
    if HAS_AVX2:
        return intrinsic_call(b, "llvm.x86.avx2.pmadd.wd", i32x8.ir, [x, y])
    undef = ir.Constant(i16x16.ir, ir.Undefined)

    def half(v: Any, first: int) -> Any:
        lanes = ir.Constant(i32x8.ir, list(range(first, 16, 2)))
        return b.sext(b.shuffle_vector(v, undef, lanes), i32x8.ir)

    return b.add(b.mul(half(x, 0), half(y, 0)), b.mul(half(x, 1), half(y, 1)))


def _dot_u8_i8(b: Any, u: Any, s: Any) -> Any:
    return _madd(b, _mul_u8_i8(b, u, s), constant(i16x16, [1] * 16))


def _dot_i8_i8(b: Any, w: Any, x: Any) -> Any:
    """|w| as unsigned, w's sign moved to x: exact for w in -128..127 and x in -127..127."""
    zeros = constant(i8x32, [0] * 32)
    negative = b.icmp_signed("<", w, zeros)
    return _dot_u8_i8(b, b.select(negative, b.sub(zeros, w), w), b.select(negative, b.sub(zeros, x), x))


mul_u8_i8 = op(i16x16, (i8x32, i8x32), _mul_u8_i8)
madd = op(i32x8, (i16x16, i16x16), _madd)
dot_u8_i8 = op(i32x8, (i8x32, i8x32), _dot_u8_i8)
dot_i8_i8 = op(i32x8, (i8x32, i8x32), _dot_i8_i8)
"""Sums of four neighbouring products in each of 8 lanes, exact."""

low_nibbles = op(i8x32, (i8x32,), lambda b, x: b.and_(x, constant(i8x32, [15] * 32)))
high_nibbles = op(i8x32, (i8x32,), lambda b, x: b.lshr(x, constant(i8x32, [4] * 32)))


def _nibbles(b: Any, address: Any) -> Any:
    """16 bytes → 32 values: the low nibbles, then the high ones."""
    raw = b.load(pointer(b, address, i8x16.ir))
    raw.align = 1
    high = b.lshr(raw, constant(i8x16, [4] * 16))
    low = b.and_(raw, constant(i8x16, [15] * 16))
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, 32), list(range(32))))


load_nibbles = op(i8x32, (types.intp,), _nibbles)


def _bits(b: Any, address: Any) -> Any:
    word = b.load(pointer(b, address, I32))
    word.align = 1
    bits = b.bitcast(word, ir.VectorType(ir.IntType(1), 32))
    return b.shl(b.zext(bits, i8x32.ir), constant(i8x32, [4] * 32))


load_fifth_bits = op(i8x32, (types.intp,), _bits)
"""32 bits as 32 bytes of 0 or 16: the fifth bits of 5-bit numbers."""


def _scales_mins(b: Any, address: Any) -> Any:
    """K-quants pack eight 6-bit scales and eight mins in 12 bytes: four whole ones in 6 bits, the rest as 4 + 2."""

    def word(offset: int) -> Any:
        value = b.load(pointer(b, b.add(address, I64(offset)), I32))
        value.align = 1
        return value

    first, second, third = word(0), word(4), word(8)
    six, four, two = I32(0x3F3F3F3F), I32(0x0F0F0F0F), I32(0x30303030)
    words = (
        b.and_(first, six),
        b.or_(b.and_(third, four), b.and_(b.lshr(first, I32(2)), two)),
        b.and_(second, six),
        b.or_(b.and_(b.lshr(third, I32(4)), four), b.and_(b.lshr(second, I32(2)), two)),
    )
    packed = ir.Constant(i32x4.ir, ir.Undefined)
    for i, value in enumerate(words):
        packed = b.insert_element(packed, value, I32(i))
    return b.zext(b.bitcast(packed, i8x16.ir), i16x16.ir)


load_scales_mins = op(i16x16, (types.intp,), _scales_mins)
"""Eight scales, then eight mins."""


def _broadcast4(b: Any, address: Any) -> Any:
    word = b.load(pointer(b, address, I32))
    word.align = 1
    undef = ir.Constant(i32x8.ir, ir.Undefined)
    lanes = b.shuffle_vector(b.insert_element(undef, word, I32(0)), undef, ir.Constant(i32x8.ir, [0] * 8))
    return b.bitcast(lanes, i8x32.ir)


broadcast_4 = op(i8x32, (types.intp,), _broadcast4)
"""Four bytes, eight times."""
broadcast_2 = op(i16x16, (types.intp,), lambda b, address: b.bitcast(_broadcast4(b, address), i16x16.ir))
"""Two 16-bit numbers, eight times."""
zero_i16, ones_i16 = fill_of(i16x16, 0), fill_of(i16x16, 1)
