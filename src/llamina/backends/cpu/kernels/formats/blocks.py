"""Each block format as the kernels want it: 32 elements in a register, and the integers that scale runs of them.

GEMV (eight rows times a token) and GEMM (tiles for many tokens) are made of these.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.iq import IQ, gather_iq1_m
from llamina.backends.cpu.kernels.formats.tile_scales import side_k, side_q6_k
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import (
    field,
    high_nibbles,
    load_bits_doubled,
    load_fields_2,
    load_fifth_bits,
    load_nibbles,
    load_scales_mins,
    lookup_of,
    low_nibbles,
    moved,
    sixteen_twice,
    trits,
)
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    constant,
    f32x8,
    fill_of,
    gather_f16,
    i8x16,
    i8x32,
    i16x8,
    i16x16,
    i32x4,
    i32x8,
    load_i8x16,
    load_i8x32,
    op,
    shuffle_of,
    splat_f32,
    widen_i8,
)
from llamina.quant.grids import FP4_DOUBLED, IQ4_LEVELS


class Block32(NamedTuple):
    """d · (u - offset) (+ m), a scale for each block; elements in runs of 32, `runs` of them to a block."""

    values: Any  # (block, run) → 32 elements, unsigned unless `signed`
    nbytes: int
    most: int  # the largest element
    offset: int = 0
    gather: Any = gather_f16  # eight blocks' scales
    has_min: bool = False  # m lies after d
    runs: int = 1
    signed: bool = False
    packed_at: int = 0  # where elements are, if there are 32 of them as they are, or
    four_bits: bool = False  # 16 bytes: the low halves, then the high ones
    levels: tuple[int, ...] = ()  # the elements that nibbles stand for, where these are not the elements
    words: bool = False  # elements are of 16 bits


class SuperBlock(NamedTuple):
    """256 elements: d · scale · (u - offset) - dmin · min, integers scaling runs of 16."""

    values: Any  # (block, run of 32) → 32 elements
    scales: Any  # block → 16 scales
    nbytes: int
    most: int
    gather: Any  # eight blocks' d
    offset: int = 0
    mins: Any = None  # block → 16 mins
    gather_min: Any = None  # eight blocks' dmin
    signed: bool = False
    by_32: bool = False  # scales come in pairs of the same
    sizes: Any = None  # (block, run of 32) → |u - offset|, where that and
    signs: Any = None  # its signs are what blocks hold
    nibbles: Any = None  # (block, run of 32) → 32 places in `levels`, where elements are of 4 bits and scales of 6
    levels: tuple[int, ...] = ()
    pairs_at: int = 0  # where 4 times 32 bytes are, if a byte holds the same element of two neighbouring runs
    side: Any = None  # (target, eight blocks) → the scales of a tile's block, where there is a quick way to them


def halves_at(offset: int, factor: float = 1.0) -> Any:
    """Eight blocks' float16 numbers at an offset, times a power of two."""

    @device
    def gather(p0, p1, p2, p3, p4, p5, p6, p7):
        v = gather_f16(
            p0 + offset, p1 + offset, p2 + offset, p3 + offset, p4 + offset, p5 + offset, p6 + offset, p7 + offset
        )
        return v * splat_f32(np.float32(factor)) if factor != 1.0 else v

    return gather


gather_min = halves_at(2)  # eight blocks' m


# ---- blocks of 32 (and 64, and 128) -------------------------------------------------------------------------


@device
def values_q4_0(p, j):
    return load_nibbles(p + 2)


@device
def values_q4_1(p, j):
    return load_nibbles(p + 4)


@device
def values_q5_0(p, j):
    return load_nibbles(p + 6) | load_fifth_bits(p + 2)


@device
def values_q5_1(p, j):
    return load_nibbles(p + 8) | load_fifth_bits(p + 4)


@device
def values_q8_0(p, j):
    return load_i8x32(p + 2)


@device
def values_q1_0(p, j):
    """128 bits, set for 1 and clear for -1."""
    return load_bits_doubled(p + 2 + 4 * j)


@device
def values_q2_0(p, j):
    return load_fields_2(p + 2 + 8 * j)


IQ4, FP4 = tuple(int(x) for x in IQ4_LEVELS), tuple(int(x) + 12 for x in FP4_DOUBLED)
levels_iq4, levels_fp4 = lookup_of(IQ4), lookup_of(FP4)


@device
def values_iq4_nl(p, j):
    return levels_iq4(load_nibbles(p + 2))


@device
def values_mxfp4(p, j):
    return levels_fp4(load_nibbles(p + 1))


def _e8m0(b: Any, *addresses: Any) -> Any:
    """Halved powers of two from their exponents: 2**(e - 128), the first two being subnormal."""
    exponents = ir.Constant(ir.VectorType(ir.IntType(8), 8), ir.Undefined)
    for i, address in enumerate(addresses):
        exponents = b.insert_element(exponents, b.load(pointer(b, address, ir.IntType(8))), I32(i))
    value = b.zext(exponents, i32x8.ir)
    normal = b.shl(b.sub(value, constant(i32x8, [1] * 8)), constant(i32x8, [23] * 8))
    subnormal = b.shl(constant(i32x8, [0x200000] * 8), value)
    small = b.icmp_unsigned("<", value, constant(i32x8, [2] * 8))
    return b.bitcast(b.select(small, subnormal, normal), f32x8.ir)


gather_e8m0 = op(f32x8, (types.intp,) * 8, _e8m0)

BLOCKS_32 = {
    "Q4_0": Block32(values_q4_0, 18, 15, offset=8, packed_at=2, four_bits=True),
    "Q4_1": Block32(values_q4_1, 20, 15, has_min=True, packed_at=4, four_bits=True),
    "Q5_0": Block32(values_q5_0, 22, 31, offset=16),
    "Q5_1": Block32(values_q5_1, 24, 31, has_min=True),
    "Q8_0": Block32(values_q8_0, 34, 128, signed=True, packed_at=2),
    "IQ4_NL": Block32(values_iq4_nl, 18, 127, signed=True, packed_at=2, four_bits=True, levels=IQ4),
    "MXFP4": Block32(values_mxfp4, 17, 24, offset=12, gather=gather_e8m0, packed_at=1, four_bits=True, levels=FP4),
    "Q1_0": Block32(values_q1_0, 18, 2, offset=1, runs=4),
    "Q2_0": Block32(values_q2_0, 18, 3, offset=1, runs=2),
}


# ---- blocks of 256 ------------------------------------------------------------------------------------------

two_bits = field(2)
bits_up_to_4, bit_up_to_4, bit_up_to_2 = moved(4, 2), moved(4, 1), moved(2, 1)


@device
def values_q2_k(p, j):
    return two_bits(load_i8x32(p + 16 + 32 * (j // 4)), 2 * (j % 4))


@device
def values_q3_k(p, j):
    """32 bytes of third bits, then 64 of two bits each."""
    return two_bits(load_i8x32(p + 32 + 32 * (j // 4)), 2 * (j % 4)) | bit_up_to_2(load_i8x32(p), j)


@device
def values_q4_k(p, j):
    v = load_i8x32(p + 16 + 32 * (j // 2))
    return high_nibbles(v) if j % 2 else low_nibbles(v)


@device
def values_q5_k(p, j):
    v = load_i8x32(p + 48 + 32 * (j // 2))
    return (high_nibbles(v) if j % 2 else low_nibbles(v)) | bit_up_to_4(load_i8x32(p + 16), j)


@device
def values_q6_k(p, j):
    """Of each half: 64 bytes of low nibbles, then high ones; 32 bytes of their upper two bits."""
    v = load_i8x32(p + 64 * (j // 4) + 32 * (j % 2))
    low = high_nibbles(v) if j % 4 >= 2 else low_nibbles(v)
    return low | bits_up_to_4(load_i8x32(p + 128 + 32 * (j // 4)), 2 * (j % 4))


@device
def nibbles_iq4_xs(p, j):
    return load_nibbles(p + 8 + 16 * j)


@device
def values_iq4_xs(p, j):
    return levels_iq4(nibbles_iq4_xs(p, j))


@device
def values_tq2_0(p, j):
    return two_bits(load_i8x32(p + 32 * (j // 4)), 2 * (j % 4))


def _two_halves(b: Any, x: Any, y: Any) -> Any:
    """The first 16 bytes of each."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, 32), [*range(16), *range(32, 48)]))


def _last_trits(b: Any, address: Any) -> Any:
    """4 bytes, four times each, their trits brought to the top by 1, 3, 9, 27: as 16 bytes, and 16 zeros."""
    raw = b.load(pointer(b, address, ir.VectorType(ir.IntType(8), 4)))
    raw.align = 1
    four = b.shuffle_vector(
        raw, ir.Constant(raw.type, [0] * 4), ir.Constant(ir.VectorType(I32, 32), [0, 1, 2, 3] * 4 + [4] * 16)
    )
    return b.mul(four, constant(i8x32, [3 ** (i // 4) for i in range(16)] + [0] * 16))


two_halves = op(i8x32, (i8x32, i8x32), _two_halves)
last_trits = op(i8x32, (types.intp,), _last_trits)
POWERS = np.array([1, 3, 9, 27, 81], np.int64)


@device
def values_tq1_0(p, j):
    """Five trits to a byte: 32 bytes, then 16; the last 4 bytes hold four each."""
    if j < 5:
        return trits(load_i8x32(p), POWERS[j])
    v = sixteen_twice(p + 32)
    if j < 7:
        return two_halves(trits(v, POWERS[2 * (j - 5)]), trits(v, POWERS[2 * (j - 5) + 1]))
    return two_halves(trits(v, 81), trits(last_trits(p + 48), 1))


twice = shuffle_of(i16x16, i16x16, [i // 2 for i in range(16)])
upper_twice = shuffle_of(i16x16, i16x16, [8 + i // 2 for i in range(16)])
ones = fill_of(i16x16, 1)
nibble_low = op(i16x16, (i8x16,), lambda b, x: b.zext(b.and_(x, constant(i8x16, [15] * 16)), i16x16.ir))
nibble_high = op(i16x16, (i8x16,), lambda b, x: b.zext(b.lshr(x, constant(i8x16, [4] * 16)), i16x16.ir))


@device
def scales_k(p):
    return twice(load_scales_mins(p + 4))


@device
def mins_k(p):
    return upper_twice(load_scales_mins(p + 4))


@device
def scales_q2_k(p):
    return nibble_low(load_i8x16(p))


@device
def mins_q2_k(p):
    return nibble_high(load_i8x16(p))


def _scales_q3(b: Any, address: Any) -> Any:
    """Sixteen 6-bit scales less 32: low nibbles of 8 bytes, high nibbles of them; 2 more bits of each in 4 bytes."""

    def word(offset: int) -> Any:
        value = b.load(pointer(b, b.add(address, ir.IntType(64)(offset)), I32))
        value.align = 1
        return value

    first, second, upper = word(0), word(4), word(8)
    four, two = I32(0x0F0F0F0F), I32(0x03030303)
    low = (b.and_(first, four), b.and_(second, four))
    high = (b.and_(b.lshr(first, I32(4)), four), b.and_(b.lshr(second, I32(4)), four))
    packed = ir.Constant(i32x4.ir, ir.Undefined)
    for i, value in enumerate((*low, *high)):
        bits = b.shl(b.and_(b.lshr(upper, I32(2 * i)), two), I32(4))
        packed = b.insert_element(packed, b.or_(value, bits), I32(i))
    wide = b.zext(b.bitcast(packed, i8x16.ir), i16x16.ir)
    return b.sub(wide, constant(i16x16, [32] * 16))


def _scales_iq4(b: Any, address: Any) -> Any:
    """Eight 6-bit scales less 32, twice each: upper 2 bits in a half word, then nibbles in a word."""

    def lanes(offset: int, kind: Any, bits: list[int], keep: int) -> Any:
        value = b.load(pointer(b, b.add(address, ir.IntType(64)(offset)), kind))
        value.align = 1
        value = b.zext(value, I32) if kind != I32 else value
        undef = ir.Constant(i32x8.ir, ir.Undefined)
        same = b.shuffle_vector(b.insert_element(undef, value, I32(0)), undef, constant(i32x8, [0] * 8))
        return b.and_(b.lshr(same, constant(i32x8, bits)), constant(i32x8, [keep] * 8))

    high = lanes(0, ir.IntType(16), [2 * i for i in range(8)], 3)
    low = lanes(2, I32, [4 * i for i in range(8)], 15)
    scale = b.sub(b.or_(low, b.shl(high, constant(i32x8, [4] * 8))), constant(i32x8, [32] * 8))
    narrow = b.trunc(scale, i16x8.ir)
    twice = ir.Constant(ir.VectorType(I32, 16), [i // 2 for i in range(16)])
    return b.shuffle_vector(narrow, ir.Constant(i16x8.ir, ir.Undefined), twice)


scales_q3_packed, scales_iq4_packed = (op(i16x16, (types.intp,), body) for body in (_scales_q3, _scales_iq4))


@device
def scales_q3_k(p):
    return scales_q3_packed(p + 96)


@device
def scales_q6_k(p):
    return widen_i8(load_i8x16(p + 192))


@device
def scales_iq4_xs(p):
    return scales_iq4_packed(p + 2)


@device
def scale_of_one(p):
    return ones()


SUPERBLOCKS = {
    "Q2_K": SuperBlock(values_q2_k, scales_q2_k, 84, 3, halves_at(80), mins=mins_q2_k, gather_min=halves_at(82)),
    "Q3_K": SuperBlock(values_q3_k, scales_q3_k, 110, 7, halves_at(108), offset=4),
    "Q4_K": SuperBlock(
        values_q4_k, scales_k, 144, 15, halves_at(0), mins=mins_k, gather_min=halves_at(2), by_32=True,
        nibbles=values_q4_k, levels=tuple(range(16)), pairs_at=16, side=side_k,
    ),
    "Q5_K": SuperBlock(
        values_q5_k, scales_k, 176, 31, halves_at(0), mins=mins_k, gather_min=halves_at(2), by_32=True, side=side_k
    ),
    "Q6_K": SuperBlock(values_q6_k, scales_q6_k, 210, 63, halves_at(208), offset=32, side=side_q6_k),
    "IQ4_XS": SuperBlock(
        values_iq4_xs, scales_iq4_xs, 136, 127, halves_at(0), signed=True, by_32=True,
        nibbles=nibbles_iq4_xs, levels=IQ4,
    ),
    "TQ1_0": SuperBlock(values_tq1_0, scale_of_one, 54, 2, halves_at(52), offset=1, by_32=True),
    "TQ2_0": SuperBlock(values_tq2_0, scale_of_one, 66, 3, halves_at(64), offset=1, by_32=True),
}  # fmt: skip
SUPERBLOCKS |= {
    name: SuperBlock(
        of.values, of.scales, of.nbytes, 2 * of.offset,
        gather_iq1_m if name == "IQ1_M" else halves_at(0, of.factor), offset=of.offset,
        by_32=of.by_32, sizes=of.sizes, signs=of.signs,
    )
    for name, of in IQ.items()
}  # fmt: skip
