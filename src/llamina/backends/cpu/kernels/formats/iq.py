"""The codebook formats in registers: 32 weights of a block as bytes, and the block's scales.

`values_x(p, j)` gives sub-block j (weights 32j..32j+31) of the block at p as unsigned bytes q + offset (of IQ2 and IQ3,
`sizes_x` and `signs_x` give |q| and its sign), and `scales_x(p)` a whole number per 16 weights, so that

    weight = d * factor * scale * q

with d the block's float16 (of IQ1_M: `gather_iq1_m`). The integers: 8 * grid ± 1 for IQ1, ± the grid's magnitudes for
IQ2 and IQ3. What the blocks hold is told in `llamina.quant.iquants`.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_VBMI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.codebooks import (
    even_signs,
    every,
    grid_iq1,
    grid_iq2_s,
    grid_iq2_xs,
    grid_iq2_xxs,
    grid_iq3_s,
    grid_iq3_xxs,
    join_4s,
    join_8s,
    less_2_all,
    less_2_by_8s,
    load,
    load_signs,
    raised,
    signed,
    signs_of_first_words,
    signs_of_last_words,
    splat,
)
from llamina.backends.cpu.kernels.formats.iq_registers import VALUES
from llamina.backends.cpu.kernels.vector.memory import i64, u8, u16, u32
from llamina.backends.cpu.kernels.vector.simd import (
    I8,
    I16,
    I32,
    I64,
    Vec,
    constant,
    f32x8,
    gathered,
    i16x8,
    i16x16,
    i32x8,
    op,
)

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


def _d_iq1_m(b: Any, *addresses: Any) -> Any:
    """The top nibbles of four words of scales together, and an eighth of that, of eight blocks."""
    eight = ir.VectorType(I64, 8)
    words, bits = gathered(b, eight, addresses), ir.Constant(eight, [0] * 8)
    for i in range(4):
        nibble = b.lshr(words, ir.Constant(eight, [12 + 12 * i] * 8))
        bits = b.or_(bits, b.and_(nibble, ir.Constant(eight, [0xF << 4 * i] * 8)))
    halves = b.bitcast(b.trunc(bits, i16x8.ir), ir.VectorType(ir.HalfType(), 8))
    return b.fmul(b.fpext(halves, f32x8.ir), constant(f32x8, [0.125] * 8))


d_iq1_m = op(f32x8, (types.intp,) * 8, _d_iq1_m)


@device
def gather_iq1_m(p0, p1, p2, p3, p4, p5, p6, p7):
    return d_iq1_m(p0 + 48, p1 + 48, p2 + 48, p3 + 48, p4 + 48, p5 + 48, p6 + 48, p7 + 48)


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
def sizes_iq2_xxs(p, j):
    at = p + 2 + 8 * j
    return join_8s(grid_iq2_xxs(u8(at)), grid_iq2_xxs(u8(at + 1)), grid_iq2_xxs(u8(at + 2)), grid_iq2_xxs(u8(at + 3)))


@device
def signs_iq2_xxs(p, j):
    return four_signs(u32(p + 6 + 8 * j))


@device
def sizes_iq2_xs(p, j):
    at = p + 2 + 8 * j
    return join_8s(
        grid_iq2_xs(u16(at) & 511),
        grid_iq2_xs(u16(at + 2) & 511),
        grid_iq2_xs(u16(at + 4) & 511),
        grid_iq2_xs(u16(at + 6) & 511),
    )


@device
def signs_iq2_xs(p, j):
    at = p + 2 + 16 * (j // 2)
    return signs_of_last_words(at) if j % 2 else signs_of_first_words(at)


@device
def sizes_iq2_s(p, j):
    at, high = p + 2 + 4 * j, u8(p + 66 + j)
    return join_8s(
        grid_iq2_s(u8(at) | high << 8 & 0x300),
        grid_iq2_s(u8(at + 1) | high << 6 & 0x300),
        grid_iq2_s(u8(at + 2) | high << 4 & 0x300),
        grid_iq2_s(u8(at + 3) | high << 2 & 0x300),
    )


@device
def signs_iq2_s(p, j):
    return load_signs(p + 34 + 4 * j)


@device
def sizes_iq3_xxs(p, j):
    index = i64(p + 2 + 8 * j)
    return join_4s(
        grid_iq3_xxs(index & 255),
        grid_iq3_xxs(index >> 8 & 255),
        grid_iq3_xxs(index >> 16 & 255),
        grid_iq3_xxs(index >> 24 & 255),
        grid_iq3_xxs(index >> 32 & 255),
        grid_iq3_xxs(index >> 40 & 255),
        grid_iq3_xxs(index >> 48 & 255),
        grid_iq3_xxs(index >> 56 & 255),
    )


@device
def signs_iq3_xxs(p, j):
    return four_signs(u32(p + 66 + 4 * j))


@device
def sizes_iq3_s(p, j):
    """The indices of even and of odd place as two words of four u16: the product moves every ninth bit to its lane."""
    low, high = i64(p + 2 + 8 * j), u8(p + 66 + j)
    even = low & 0x00FF00FF00FF00FF | high * (1 << 8 | 1 << 22 | 1 << 36 | 1 << 50) & 0x0100010001000100
    odd = low >> 8 & 0x00FF00FF00FF00FF | high * (1 << 7 | 1 << 21 | 1 << 35 | 1 << 49) & 0x0100010001000100
    return join_4s(
        grid_iq3_s(even & 0xFFFF),
        grid_iq3_s(odd & 0xFFFF),
        grid_iq3_s(even >> 16 & 0xFFFF),
        grid_iq3_s(odd >> 16 & 0xFFFF),
        grid_iq3_s(even >> 32 & 0xFFFF),
        grid_iq3_s(odd >> 32 & 0xFFFF),
        grid_iq3_s(even >> 48),
        grid_iq3_s(odd >> 48),
    )


@device
def signs_iq3_s(p, j):
    return load_signs(p + 74 + 4 * j)


class Codebook(NamedTuple):
    values: Any
    scales: Any
    nbytes: int
    offset: int
    factor: float
    by_32: bool = True  # scales come in pairs of the same
    sizes: Any = None  # (block, run) → what `values` are without their signs,
    signs: Any = None  # and 1 or -1 for each


def of_signs(sizes: Any, signs: Any, scales: Any, nbytes: int, offset: int, factor: float, by_32: bool) -> Codebook:
    raise_by = raised(offset)

    @device
    def values(p, j):
        return raise_by(signed(sizes(p, j), signs(p, j)))

    return Codebook(values, scales, nbytes, offset, factor, by_32, sizes, signs)


IQ = {
    "IQ1_S": Codebook(values_iq1_s, scales_iq1_s, 50, 9, 0.125),
    "IQ1_M": Codebook(values_iq1_m, scales_iq1_m, 56, 9, 0.125, by_32=False),
    "IQ2_XXS": of_signs(sizes_iq2_xxs, signs_iq2_xxs, scales_iq2_xxs, 66, 43, 0.125, by_32=True),
    "IQ2_XS": of_signs(sizes_iq2_xs, signs_iq2_xs, scales_iq2_xs, 74, 43, 0.125, by_32=False),
    "IQ2_S": of_signs(sizes_iq2_s, signs_iq2_s, scales_iq2_s, 82, 43, 0.125, by_32=False),
    "IQ3_XXS": of_signs(sizes_iq3_xxs, signs_iq3_xxs, scales_iq3_xxs, 98, 62, 0.25, by_32=True),
    "IQ3_S": of_signs(sizes_iq3_s, signs_iq3_s, scales_iq3_s, 110, 15, 1.0, by_32=True),
}
if HAS_VBMI:
    IQ |= {name: IQ[name]._replace(values=values) for name, values in VALUES.items()}
