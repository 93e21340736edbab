"""Products of 8-bit integers, and the ways block formats pack their parts into bytes."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX2, HAS_VNNI
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    Vec,
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


def lower_madd(b: Any, x: Any, y: Any) -> Any:
    """i32 sums of neighbouring i16 products."""
    if HAS_AVX2:
        return intrinsic_call(b, "llvm.x86.avx2.pmadd.wd", i32x8.ir, [x, y])
    undef = ir.Constant(i16x16.ir, ir.Undefined)

    def half(v: Any, first: int) -> Any:
        lanes = ir.Constant(i32x8.ir, list(range(first, 16, 2)))
        return b.sext(b.shuffle_vector(v, undef, lanes), i32x8.ir)

    return b.add(b.mul(half(x, 0), half(y, 0)), b.mul(half(x, 1), half(y, 1)))


mul_u8_i8 = op(i16x16, (i8x32, i8x32), _mul_u8_i8)
madd = op(i32x8, (i16x16, i16x16), lower_madd)

low_nibbles = op(i8x32, (i8x32,), lambda b, x: b.and_(x, constant(i8x32, [15] * 32)))
high_nibbles = op(i8x32, (i8x32,), lambda b, x: b.lshr(x, constant(i8x32, [4] * 32)))


def _nibbles(b: Any, address: Any) -> Any:
    """16 bytes → 32 values: the low nibbles, then the high ones."""
    raw = b.load(pointer(b, address, i8x16.ir))
    raw.align = 1
    high = b.lshr(raw, constant(i8x16, [4] * 16))
    low = b.and_(raw, constant(i8x16, [15] * 16))
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, 32), list(range(32))))


def _sixteens(b: Any, first: Any, second: Any) -> Any:
    """16 bytes from each of two places."""
    raw = [b.load(pointer(b, address, i8x16.ir)) for address in (first, second)]
    for part in raw:
        part.align = 1
    return b.shuffle_vector(*raw, ir.Constant(ir.VectorType(I32, 32), list(range(32))))


load_nibbles = op(i8x32, (types.intp,), _nibbles)
sixteens = op(i8x32, (types.intp,) * 2, _sixteens)
sixteen_twice = op(i8x32, (types.intp,), lambda b, p: _sixteens(b, p, p))


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


ones_i16 = fill_of(i16x16, 1)


def _mul_i8_i8(b: Any, w: Any, x: Any) -> Any:
    """i16 sums of neighbouring signed products: w's sign moves to x. Exact for w in -128..127, x in -127..127."""
    if HAS_AVX2:
        unsigned = intrinsic_call(b, "llvm.abs.v32i8", i8x32.ir, [w, ir.Constant(ir.IntType(1), 0)])
        signed = intrinsic_call(b, "llvm.x86.avx2.psign.b", i8x32.ir, [x, w])
        return _mul_u8_i8(b, unsigned, signed)
    zeros = constant(i8x32, [0] * 32)
    negative = b.icmp_signed("<", w, zeros)
    return _mul_u8_i8(b, b.select(negative, b.sub(zeros, w), w), b.select(negative, b.sub(zeros, x), x))


mul_i8_i8 = op(i16x16, (i8x32, i8x32), _mul_i8_i8)


def _add_dot(b: Any, total: Any, u: Any, s: Any) -> Any:
    """total + the sums of four neighbouring products, in 32 bits; of AVX-512's VNNI."""
    operands = [total, b.bitcast(u, i32x8.ir), b.bitcast(s, i32x8.ir)]
    return intrinsic_call(b, "llvm.x86.avx512.vpdpbusd.256", i32x8.ir, operands)


add_dot = op(i32x8, (i32x8, i8x32, i8x32), _add_dot)


def lower_lookup(b: Any, table: tuple[int, ...], index: Any) -> Any:
    """The table's entries for the lower halves of bytes below 128."""
    if HAS_AVX2:
        entries = constant(i8x32, [t & 255 for t in table] * 2)
        return intrinsic_call(b, "llvm.x86.avx2.pshuf.b", i8x32.ir, [entries, index])
    index = b.and_(index, constant(i8x32, [15] * 32))
    value = constant(i8x32, [table[0] & 255] * 32)
    for i, entry in enumerate(table[1:], 1):
        hit = b.icmp_unsigned("==", index, constant(i8x32, [i] * 32))
        value = b.select(hit, constant(i8x32, [entry & 255] * 32), value)
    return value


def lookup_of(table: tuple[int, ...]) -> Any:
    """An intrinsic: bytes 0..15 → the table's entries."""
    return op(i8x32, (i8x32,), lambda b, index: lower_lookup(b, table, index))


def times_of(factor: int) -> Any:
    """An intrinsic: 32-bit lanes times a constant."""
    return op(i32x8, (i32x8,), lambda b, x: b.mul(x, constant(i32x8, [factor] * 8)))


def field(bits: int) -> Any:
    """An intrinsic (vector, by): every byte shifted right by the same runtime amount, its lowest `bits` kept."""

    def body(b: Any, x: Any, by: Any) -> Any:
        undef = ir.Constant(i8x32.ir, ir.Undefined)
        narrow = b.trunc(by, ir.IntType(8))
        lanes = b.shuffle_vector(
            b.insert_element(undef, narrow, I32(0)), undef, ir.Constant(ir.VectorType(I32, 32), [0] * 32)
        )
        return b.and_(b.lshr(x, lanes), constant(i8x32, [(1 << bits) - 1] * 32))

    return op(i8x32, (i8x32, types.intp), body)


def moved(to: int, bits: int) -> Any:
    """An intrinsic (vector, by): the `bits` of every byte from bit `by` on, at bit `to`, and zeros around them.

    Words are shifted, for want of shifts of bytes; what comes over from the neighbour is masked.
    """

    def body(b: Any, x: Any, by: Any) -> Any:
        def lanes(amount: Any) -> Any:
            undef, narrow = ir.Constant(i16x16.ir, ir.Undefined), b.trunc(amount, ir.IntType(16))
            return b.shuffle_vector(
                b.insert_element(undef, narrow, I32(0)), undef, ir.Constant(ir.VectorType(I32, 16), [0] * 16)
            )

        words, far = b.bitcast(x, i16x16.ir), b.icmp_signed(">", by, I64(to))
        right, left = b.sub(by, I64(to)), b.sub(I64(to), by)
        none = I64(0)
        shifted = b.lshr(b.shl(words, lanes(b.select(far, none, left))), lanes(b.select(far, right, none)))
        return b.and_(b.bitcast(shifted, i8x32.ir), constant(i8x32, [((1 << bits) - 1) << to] * 32))

    return op(i8x32, (i8x32, types.intp), body)


def _bits_up(b: Any, address: Any) -> Any:
    """32 bits as 32 bytes of 0 or 2."""
    word = b.load(pointer(b, address, I32))
    word.align = 1
    return b.shl(b.zext(b.bitcast(word, ir.VectorType(ir.IntType(1), 32)), i8x32.ir), constant(i8x32, [1] * 32))


load_bits_doubled = op(i8x32, (types.intp,), _bits_up)


def _pairs_of_bits(b: Any, address: Any) -> Any:
    """8 bytes as 32 fields of 2 bits, low first."""
    raw = b.load(pointer(b, address, ir.VectorType(ir.IntType(8), 8)))
    raw.align = 1
    spread = b.shuffle_vector(
        raw, ir.Constant(raw.type, ir.Undefined), ir.Constant(ir.VectorType(I32, 32), [i // 4 for i in range(32)])
    )
    return b.and_(b.lshr(spread, constant(i8x32, [0, 2, 4, 6] * 8)), constant(i8x32, [3] * 32))


load_fields_2 = op(i8x32, (types.intp,), _pairs_of_bits)


def _trits(b: Any, x: Any, power: Any) -> Any:
    """The trit of each byte that `power` (1, 3, … 81) brings to the top: (x·power mod 256)·3 / 256."""
    undef = ir.Constant(i8x32.ir, ir.Undefined)
    narrow = b.insert_element(undef, b.trunc(power, ir.IntType(8)), I32(0))
    lanes = b.shuffle_vector(narrow, undef, ir.Constant(ir.VectorType(I32, 32), [0] * 32))
    wide = ir.VectorType(ir.IntType(16), 32)
    three = b.mul(b.zext(b.mul(x, lanes), wide), ir.Constant(wide, [3] * 32))
    return b.trunc(b.lshr(three, ir.Constant(wide, [8] * 32)), i8x32.ir)


trits = op(i8x32, (i8x32, types.intp), _trits)


# ---- 512 bits -----------------------------------------------------------------------------------------------

i8x64, i16x32, i32x16 = Vec("i8x64", ir.IntType(8), 64), Vec("i16x32", ir.IntType(16), 32), Vec("i32x16", I32, 16)


def _both(b: Any, x: Any, y: Any) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, 64), list(range(64))))


def _load_64(b: Any, address: Any) -> Any:
    value = b.load(pointer(b, address, i8x64.ir))
    value.align = 1
    return value


def _mul_wide(signed: bool) -> Any:
    """i16 sums of neighbouring products, as mul_u8_i8 and mul_i8_i8."""

    def body(b: Any, w: Any, x: Any) -> Any:
        if signed:
            zeros = constant(i8x64, [0] * 64)
            negative = b.icmp_signed("<", w, zeros)
            w, x = b.select(negative, b.sub(zeros, w), w), b.select(negative, b.sub(zeros, x), x)
        return intrinsic_call(b, "llvm.x86.avx512.pmaddubs.w.512", i16x32.ir, [w, x])

    return op(i16x32, (i8x64, i8x64), body)


def _fold(b: Any, x: Any) -> Any:
    undef = ir.Constant(i32x16.ir, ir.Undefined)
    low, high = (b.shuffle_vector(x, undef, ir.Constant(i32x8.ir, list(range(n, n + 8)))) for n in (0, 8))
    return b.add(low, high)


both_runs, load_i8x64 = op(i8x64, (i8x32, i8x32), _both), op(i8x64, (types.intp,), _load_64)
mul_u8_i8_wide, mul_i8_i8_wide = _mul_wide(False), _mul_wide(True)


def _add_madd_wide(b: Any, total: Any, x: Any, y: Any) -> Any:
    if HAS_VNNI:
        kind = ir.FunctionType(i32x16.ir, [i32x16.ir, i16x32.ir, i16x32.ir])
        return b.asm(kind, "vpdpwssd $3, $2, $0", "=v,0,v,v", [total, x, y], False)  # LLVM would take it apart
    return b.add(total, intrinsic_call(b, "llvm.x86.avx512.pmaddw.d.512", i32x16.ir, [x, y]))


add_madd_wide = op(i32x16, (i32x16, i16x32, i16x32), _add_madd_wide)
"""total + sums of neighbouring i16 products."""
fold_i32, zero_i32_wide = op(i32x8, (i32x16,), _fold), fill_of(i32x16, 0)
"""The halves of 16 sums, added."""
