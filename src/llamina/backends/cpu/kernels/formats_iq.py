"""The codebook formats in registers: 32 weights of a block as bytes, and the block's scales.

`values_x(p, j)` gives sub-block j (weights 32j..32j+31) of the block at p as unsigned bytes q + offset, and
`scales_x(p)` a whole number per 16 weights, so that

    weight = d * factor * scale * q

with d the block's float16 (of IQ1_M: `d_iq1_m`). The integers: 8 * grid ± 1 for IQ1, ± the grid's magnitudes for IQ2
and IQ3. What the blocks hold is told in `llamina.quant.iquants`.

A codebook is an array of words in the compiled code, 8 (IQ3: 4) bytes to a word, the first weight in the lowest: four
(eight) of them loaded side by side are a register of weights.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.memory import i64, pointer, u8, u16, u32
from llamina.backends.cpu.kernels.simd import I8, I16, I32, I64, Vec, constant, i8x32, i16x8, i16x16, i32x8, op
from llamina.quant.grids import (
    EVEN_SIGNS,
    IQ1_GRID,
    IQ2_S_GRID,
    IQ2_XS_GRID,
    IQ2_XXS_GRID,
    IQ3_S_GRID,
    IQ3_XXS_GRID,
)

i64x4 = Vec("i64x4", I64, 4)


# ---- tables -------------------------------------------------------------------------------------------------


def table_of(name: str, rows: NDArray[np.int8]) -> Any:
    """A lookup without checks: index → the row's bytes as one unsigned integer."""
    word, result = (I64, types.uint64) if rows.shape[1] == 8 else (I32, types.uint32)
    entries = np.ascontiguousarray(rows).view(f"<u{rows.shape[1]}")[:, 0].tolist()
    array = ir.ArrayType(word, len(entries))

    def body(b: Any, index: Any) -> Any:
        table = b.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(b.module, array, name)
            table.initializer = ir.Constant(array, entries)
            table.linkage, table.global_constant, table.unnamed_addr, table.align = "internal", True, True, 64
        return b.load(b.gep(table, [I64(0), index], inbounds=True))

    return op(result, (types.intp,), body)


grid_iq1 = table_of("llamina_iq1", 8 * IQ1_GRID + np.int8(10))
"""The bytes of a shift up: 8 * grid + 1 + 9."""
grid_iq2_xxs = table_of("llamina_iq2_xxs", IQ2_XXS_GRID)
grid_iq2_xs = table_of("llamina_iq2_xs", IQ2_XS_GRID)
grid_iq2_s = table_of("llamina_iq2_s", IQ2_S_GRID)
grid_iq3_xxs = table_of("llamina_iq3_xxs", IQ3_XXS_GRID)
grid_iq3_s = table_of("llamina_iq3_s", IQ3_S_GRID)
even_signs = table_of("llamina_even_signs", EVEN_SIGNS >> 7)
"""7 bits → 8 bytes, all ones where the weight is negative."""


# ---- registers ----------------------------------------------------------------------------------------------


def load(b: Any, address: Any, kind: ir.Type) -> Any:
    value = b.load(pointer(b, address, kind))
    value.align = 1
    return value


def splat(b: Any, vec: Vec, value: Any) -> Any:
    undef, n = ir.Constant(vec.ir, ir.Undefined), vec.ir.count
    return b.shuffle_vector(b.insert_element(undef, value, I32(0)), undef, ir.Constant(ir.VectorType(I32, n), [0] * n))


def every(vec: Vec, value: int) -> Any:
    return constant(vec, [value] * vec.ir.count)


def _join(b: Any, *words: Any) -> Any:
    value = ir.Constant(ir.VectorType(words[0].type, len(words)), ir.Undefined)
    for i, word in enumerate(words):
        value = b.insert_element(value, word, I32(i))
    return b.bitcast(value, i8x32.ir)


join_8s = op(i8x32, (types.uint64,) * 4, _join)
join_4s = op(i8x32, (types.uint32,) * 8, _join)


def signed_of(offset: int) -> Any:
    """Magnitudes and masks of the negative ones → ± magnitude + offset."""

    def body(b: Any, values: Any, negative: Any) -> Any:
        return b.add(b.xor(values, negative), b.sub(every(i8x32, offset), negative))

    return op(i8x32, (i8x32, i8x32), body)


signed_43, signed_62, signed_15 = signed_of(43), signed_of(62), signed_of(15)


def _load_signs(b: Any, address: Any) -> Any:
    bits = b.bitcast(load(b, address, I32), ir.VectorType(ir.IntType(1), 32))
    return b.sext(bits, i8x32.ir)


load_signs = op(i8x32, (types.intp,), _load_signs)
"""32 bits → 32 bytes, all ones where the bit is set."""


def _less_2_all(b: Any, values: Any, address: Any) -> Any:
    """Two less everywhere if the u16 at the address has its top bit set."""
    mask = b.ashr(splat(b, i16x16, load(b, address, I16)), every(i16x16, 15))
    mask = b.bitcast(mask, i8x32.ir)
    return b.add(b.add(values, mask), mask)


def _less_2_by_8s(b: Any, values: Any, address: Any) -> Any:
    """Two less in those of the four groups of 8 whose nibble of the u16 at the address has its top bit set."""
    bits = constant(i64x4, [0x8, 0x80, 0x800, 0x8000])
    found = b.and_(splat(b, i64x4, b.zext(load(b, address, I16), I64)), bits)
    mask = b.bitcast(b.sext(b.icmp_signed("==", found, bits), i64x4.ir), i8x32.ir)
    return b.add(b.add(values, mask), mask)


less_2_all = op(i8x32, (i8x32, types.intp), _less_2_all)
less_2_by_8s = op(i8x32, (i8x32, types.intp), _less_2_by_8s)


# ---- scales -------------------------------------------------------------------------------------------------


def _twice(b: Any, words: Any) -> Any:
    """Eight i32 below 2**16, each as two i16."""
    return b.bitcast(b.or_(words, b.shl(words, every(i32x8, 16))), i16x16.ir)


def _odd(b: Any, vec: Vec, doubled: Any, field: int) -> Any:
    """2 * s + 1 of the bits of `field`, which is one up from the scale's place."""
    return b.or_(b.and_(doubled, every(vec, field)), every(vec, 1))


def _top_nibbles(b: Any, words: Any) -> Any:
    """The scales in the top 4 bits of eight words."""
    return _twice(b, _odd(b, i32x8, b.lshr(words, every(i32x8, 27)), 30))


def _scales_iq1_s(b: Any, p: Any) -> Any:
    words = load(b, b.add(p, I64(34)), i16x8.ir)
    scales = _odd(b, i16x8, b.lshr(words, every(i16x8, 11)), 14)
    lanes = ir.Constant(ir.VectorType(I32, 16), [i // 2 for i in range(16)])
    return b.shuffle_vector(scales, ir.Constant(i16x8.ir, ir.Undefined), lanes)


def _scales_iq1_m(b: Any, p: Any) -> Any:
    four = ir.VectorType(I16, 4)
    lanes = ir.Constant(ir.VectorType(I32, 16), [i // 4 for i in range(16)])
    words = b.shuffle_vector(load(b, b.add(p, I64(48)), four), ir.Constant(four, ir.Undefined), lanes)
    high = b.shl(words, constant(i16x16, [9, 6, 3, 0] * 4))  # every lane's scale in bits 9..11
    return _odd(b, i16x16, b.lshr(high, every(i16x16, 8)), 14)


def _scales_iq2_xxs(b: Any, p: Any) -> Any:
    first, second = (load(b, b.add(p, I64(at)), i32x8.ir) for at in (2, 34))
    return _top_nibbles(b, b.shuffle_vector(first, second, ir.Constant(i32x8.ir, list(range(1, 16, 2)))))


def nibble_scales(at: int) -> Any:
    """16 nibbles, low first."""

    def body(b: Any, p: Any) -> Any:
        words = b.zext(load(b, b.add(p, I64(at)), ir.VectorType(I8, 8)), i32x8.ir)
        both = b.or_(b.shl(words, every(i32x8, 1)), b.shl(words, every(i32x8, 13)))
        return _odd(b, i16x16, b.bitcast(both, i16x16.ir), 30)

    return op(i16x16, (types.intp,), body)


def _scales_iq3_xxs(b: Any, p: Any) -> Any:
    return _top_nibbles(b, load(b, b.add(p, I64(66)), i32x8.ir))


def _scales_iq3_s(b: Any, p: Any) -> Any:
    words = splat(b, i32x8, load(b, b.add(p, I64(106)), I32))
    return _top_nibbles(b, b.shl(words, constant(i32x8, list(range(28, -1, -4)))))


scales_iq1_s, scales_iq1_m = op(i16x16, (types.intp,), _scales_iq1_s), op(i16x16, (types.intp,), _scales_iq1_m)
scales_iq2_xxs, scales_iq2_xs, scales_iq2_s = (
    op(i16x16, (types.intp,), _scales_iq2_xxs),
    nibble_scales(66),
    nibble_scales(74),
)
scales_iq3_xxs, scales_iq3_s = op(i16x16, (types.intp,), _scales_iq3_xxs), op(i16x16, (types.intp,), _scales_iq3_s)

half_bits = op(
    types.float32,
    (types.intp,),
    lambda b, bits: b.fpext(b.bitcast(b.trunc(bits, I16), ir.HalfType()), ir.FloatType()),
)


@device
def d_iq1_m(p):
    """The top nibbles of the four words of scales."""
    w = i64(p + 48)
    return half_bits(w >> 12 & 0xF | w >> 24 & 0xF0 | w >> 36 & 0xF00 | w >> 48 & 0xF000)


# ---- values -------------------------------------------------------------------------------------------------


@device
def values_iq1_s(p, j):
    at, high = p + 2 + 4 * j, u16(p + 34 + 2 * j)
    q = join_8s(
        grid_iq1(u8(at) | high << 8 & 0x700),
        grid_iq1(u8(at + 1) | high << 5 & 0x700),
        grid_iq1(u8(at + 2) | high << 2 & 0x700),
        grid_iq1(u8(at + 3) | high >> 1 & 0x700),
    )
    return less_2_all(q, p + 34 + 2 * j)


@device
def values_iq1_m(p, j):
    at, high = p + 4 * j, u16(p + 32 + 2 * j)
    q = join_8s(
        grid_iq1(u8(at) | high << 8 & 0x700),
        grid_iq1(u8(at + 1) | high << 4 & 0x700),
        grid_iq1(u8(at + 2) | high & 0x700),
        grid_iq1(u8(at + 3) | high >> 4 & 0x700),
    )
    return less_2_by_8s(q, p + 32 + 2 * j)


@device
def four_signs(word):
    """Four 7-bit fields."""
    return join_8s(
        even_signs(word & 127), even_signs(word >> 7 & 127), even_signs(word >> 14 & 127), even_signs(word >> 21 & 127)
    )


@device
def values_iq2_xxs(p, j):
    at = p + 2 + 8 * j
    q = join_8s(grid_iq2_xxs(u8(at)), grid_iq2_xxs(u8(at + 1)), grid_iq2_xxs(u8(at + 2)), grid_iq2_xxs(u8(at + 3)))
    return signed_43(q, four_signs(u32(at + 4)))


@device
def values_iq2_xs(p, j):
    at = p + 2 + 8 * j
    a, b, c, d = u16(at), u16(at + 2), u16(at + 4), u16(at + 6)
    q = join_8s(grid_iq2_xs(a & 511), grid_iq2_xs(b & 511), grid_iq2_xs(c & 511), grid_iq2_xs(d & 511))
    return signed_43(q, join_8s(even_signs(a >> 9), even_signs(b >> 9), even_signs(c >> 9), even_signs(d >> 9)))


@device
def values_iq2_s(p, j):
    at, high = p + 2 + 4 * j, u8(p + 66 + j)
    q = join_8s(
        grid_iq2_s(u8(at) | high << 8 & 0x300),
        grid_iq2_s(u8(at + 1) | high << 6 & 0x300),
        grid_iq2_s(u8(at + 2) | high << 4 & 0x300),
        grid_iq2_s(u8(at + 3) | high << 2 & 0x300),
    )
    return signed_43(q, load_signs(p + 34 + 4 * j))


@device
def values_iq3_xxs(p, j):
    index = i64(p + 2 + 8 * j)
    q = join_4s(
        grid_iq3_xxs(index & 255),
        grid_iq3_xxs(index >> 8 & 255),
        grid_iq3_xxs(index >> 16 & 255),
        grid_iq3_xxs(index >> 24 & 255),
        grid_iq3_xxs(index >> 32 & 255),
        grid_iq3_xxs(index >> 40 & 255),
        grid_iq3_xxs(index >> 48 & 255),
        grid_iq3_xxs(index >> 56 & 255),
    )
    return signed_62(q, four_signs(u32(p + 66 + 4 * j)))


@device
def values_iq3_s(p, j):
    """The indices of even and of odd place as two words of four u16: the product moves every ninth bit to its lane."""
    low, high = i64(p + 2 + 8 * j), u8(p + 66 + j)
    even = low & 0x00FF00FF00FF00FF | high * (1 << 8 | 1 << 22 | 1 << 36 | 1 << 50) & 0x0100010001000100
    odd = low >> 8 & 0x00FF00FF00FF00FF | high * (1 << 7 | 1 << 21 | 1 << 35 | 1 << 49) & 0x0100010001000100
    q = join_4s(
        grid_iq3_s(even & 0xFFFF),
        grid_iq3_s(odd & 0xFFFF),
        grid_iq3_s(even >> 16 & 0xFFFF),
        grid_iq3_s(odd >> 16 & 0xFFFF),
        grid_iq3_s(even >> 32 & 0xFFFF),
        grid_iq3_s(odd >> 32 & 0xFFFF),
        grid_iq3_s(even >> 48),
        grid_iq3_s(odd >> 48),
    )
    return signed_15(q, load_signs(p + 74 + 4 * j))


IQ = {
    "IQ1_S": (values_iq1_s, scales_iq1_s, 9, 0.125),
    "IQ1_M": (values_iq1_m, scales_iq1_m, 9, 0.125),
    "IQ2_XXS": (values_iq2_xxs, scales_iq2_xxs, 43, 0.125),
    "IQ2_XS": (values_iq2_xs, scales_iq2_xs, 43, 0.125),
    "IQ2_S": (values_iq2_s, scales_iq2_s, 43, 0.125),
    "IQ3_XXS": (values_iq3_xxs, scales_iq3_xxs, 62, 0.25),
    "IQ3_S": (values_iq3_s, scales_iq3_s, 15, 1.0),
}
"""Format → values, scales, offset, factor."""
