"""The codebook formats, 64 elements at a time, by instructions that permute bytes (AVX-512 VBMI, GFNI).

IQ2 and IQ3: an entry is a code of 16 bits here, 8 fields of 2 bits (weights of 3 magnitudes) or 4 of 4 (of 8). The
codebook is in registers: `vpermi2w` looks up 32 words in 64, `vpermi2b` 64 bytes in 128, and indices' upper bits choose
between the results for the parts of the codebook. `vpmultishiftqb` brings a field to every byte, and `vpermb` replaces
it by its magnitude; neither minds the bits above. Signs are the bits of masks, by which activations are negated; where
there are seven for 8 weights, `vgf2p8affineqb` adds their parity.

IQ1: a codebook that registers do not hold. Indices are computed side by side, and entries loaded one by one.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.codebooks import entry_iq1, every, i64x4, load, splat
from llamina.backends.cpu.kernels.vector.products import i8x64, i16x32, i32x16
from llamina.backends.cpu.kernels.vector.simd import I32, I64, Vec, constant, i8x32, i16x8, i32x8, intrinsic_call, op
from llamina.quant.grids import IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID

i64x8 = Vec("i64x8", I64, 8)
BITS, f64x8 = ir.VectorType(ir.IntType(1), 64), ir.VectorType(ir.DoubleType(), 8)


def picked(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


# ---- lookups ------------------------------------------------------------------------------------------------


def codes_of(grid: NDArray[np.int8], bits: int) -> list[int]:
    """Entries as numbers: the magnitudes' ranks in fields of `bits`, the first weight's in the lowest."""
    ranks = np.searchsorted(np.unique(grid), grid)
    return [int(code) for code in (ranks << bits * np.arange(grid.shape[1])).sum(-1)]


def looked_up(b: Any, vec: Vec, table: list[int], index: Any, upper: list[Any]) -> Any:
    """Entries for the lower 6 bits (words) or 7 bits (bytes) of indices, and for masks of the bits above them."""
    n, kind = vec.ir.count, "hi" if vec is i16x32 else "qi"
    parts = [constant(vec, table[i : i + n]) for i in range(0, len(table), n)]
    found = [
        intrinsic_call(b, f"llvm.x86.avx512.vpermi2var.{kind}.512", vec.ir, [low, index, high])
        for low, high in zip(parts[::2], parts[1::2], strict=True)
    ]
    for mask in upper:
        found = [b.select(mask, high, low) for low, high in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def multishift(b: Any, shifts: list[int], x: Any) -> Any:
    """Of each word of 64 bits, the 8 bits from each of eight places on."""
    vec = i8x64 if x.type.count == 64 else i8x32
    name, times = f"llvm.x86.avx512.pmultishift.qb.{8 * x.type.count}", x.type.count // len(shifts)
    return intrinsic_call(b, name, vec.ir, [constant(vec, shifts * times), x])


def has_bit(b: Any, words: Any, n: int) -> Any:
    return b.icmp_unsigned("!=", b.and_(words, every(i16x32, 1 << n)), every(i16x32, 0))


# ---- IQ2 ----------------------------------------------------------------------------------------------------

PLACES = [8 * (i % 4) + i // 4 for i in range(32)]
"""Codes are looked up in this order, so that the j-th of every four are those of weights 64j..64j+63, in order."""


def codes_iq2_xxs(b: Any, p: Any) -> Any:
    raw = load(b, b.add(p, I64(2)), i8x64.ir)
    index = b.bitcast(picked(b, raw, raw, [8 * (i // 4) + i % 4 for i in PLACES for _ in range(2)]), i16x32.ir)
    return looked_up(b, i16x32, codes_of(IQ2_XXS_GRID, 2), index, [has_bit(b, index, n) for n in (6, 7)])


def codes_iq2_xs(b: Any, p: Any) -> Any:
    raw = load(b, b.add(p, I64(2)), i16x32.ir)
    index = picked(b, raw, raw, PLACES)
    return looked_up(b, i16x32, codes_of(IQ2_XS_GRID, 2), index, [has_bit(b, index, n) for n in (6, 7, 8)])


def codes_iq2_s(b: Any, p: Any) -> Any:
    raw = load(b, b.add(p, I64(2)), i8x32.ir)
    index = b.bitcast(picked(b, raw, raw, [i for i in PLACES for _ in range(2)]), i16x32.ir)
    above = b.bitcast(splat(b, i64x8, load(b, b.add(p, I64(66)), I64)), i8x64.ir)
    high = b.bitcast(multishift(b, [2 * i for i in PLACES for _ in range(2)], above), i16x32.ir)
    upper = [has_bit(b, index, n) for n in (6, 7)] + [has_bit(b, high, n) for n in (0, 1)]
    return looked_up(b, i16x32, codes_of(IQ2_S_GRID, 2), index, upper)


def fields_2(codes: Any) -> Any:
    def fields(b: Any, p: Any, j: int) -> Any:
        return multishift(b, [16 * j + 2 * i for i in range(8)], b.bitcast(codes(b, p), i8x64.ir))

    return fields


# ---- IQ3 ----------------------------------------------------------------------------------------------------


def fields_4(grid: NDArray[np.int8]) -> Any:
    """The halves of codes are looked up by themselves, then brought together so that 32 bits are 8 weights."""
    codes = codes_of(grid, 4)
    halves = [[code & 255 for code in codes], [code >> 8 for code in codes]]

    def fields(b: Any, p: Any, j: int) -> Any:
        index = load(b, b.add(p, I64(2)), i8x64.ir)
        upper = [b.icmp_signed("<", index, every(i8x64, 0))]
        if len(codes) == 512:
            upper.append(b.bitcast(load(b, b.add(p, I64(66)), I64), BITS))
        low, high = (looked_up(b, i8x64, half, index, upper) for half in halves)
        first = [32 * (j // 2) + 16 * (i // 4 % 2) + 2 * (i // 8) + i % 4 // 2 for i in range(64)]
        both = picked(b, low, high, [place + 64 * (i % 2) for i, place in enumerate(first)])
        return multishift(b, [32 * (j % 2) + 4 * i for i in range(8)], both)

    return fields


# ---- signs --------------------------------------------------------------------------------------------------


def with_parity(b: Any, sevens: Any, first: int) -> Any:
    """Bytes of the 7 bits from bit `first` on, and above these their parity."""
    rows = [127 << first, *(1 << i + first for i in range(6, -1, -1))]  # of a matrix over GF(2), the top bit's first
    matrix, none = constant(i8x32, rows * 4), ir.IntType(8)(0)
    return intrinsic_call(b, "llvm.x86.vgf2p8affineqb.256", i8x32.ir, [sevens, matrix, none])


def mask_of(b: Any, bits: Any, j: int) -> Any:
    """The j-th 64 of 256 bits."""
    return b.bitcast(b.extract_element(b.bitcast(bits, i64x4.ir), I32(j)), BITS)


def of_words(b: Any, words: Any, j: int) -> Any:
    """Of eight words with four times 7 signs each."""
    sevens = multishift(b, [0, 7, 14, 21, 32, 39, 46, 53], b.bitcast(words, i8x32.ir))
    return mask_of(b, with_parity(b, sevens, 0), j)


def negative_iq2_xxs(b: Any, p: Any, j: int) -> Any:
    first, second = (load(b, b.add(p, I64(at)), i32x8.ir) for at in (2, 34))
    return of_words(b, picked(b, first, second, list(range(1, 16, 2))), j)


def negative_iq2_xs(b: Any, p: Any, j: int) -> Any:
    raw = load(b, b.add(p, I64(2)), i8x64.ir)
    return mask_of(b, with_parity(b, picked(b, raw, raw, list(range(1, 64, 2))), 1), j)


def negative_iq3_xxs(b: Any, p: Any, j: int) -> Any:
    return of_words(b, load(b, b.add(p, I64(66)), i32x8.ir), j)


def bits_at(at: int) -> Any:
    return lambda b, p, j: b.bitcast(load(b, b.add(p, I64(at + 8 * j)), I64), BITS)


# ---- elements -----------------------------------------------------------------------------------------------


def magnitudes(b: Any, levels: list[int], fields: Any) -> Any:
    """By the lowest bits of bytes, as many as tell the levels apart."""
    entries = levels + [0] * (-len(levels) % 4)
    table = constant(i8x64, entries * (64 // len(entries)))
    return intrinsic_call(b, "llvm.x86.avx512.permvar.qi.512", i8x64.ir, [table, fields])


def of_signs(grid: NDArray[np.int8], offset: int, fields: Any, negative: Any) -> Any:
    levels = [int(level) for level in np.unique(grid)]

    def elements(b: Any, p: Any, j: int) -> Any:
        up, down = [offset + n for n in levels], [offset - n for n in levels]
        bits = fields(b, p, j)
        return b.select(negative(b, p, j), magnitudes(b, down, bits), magnitudes(b, up, bits))

    def factors(b: Any, p: Any, x: Any, j: int) -> Any:
        x = b.select(negative(b, p, j), b.sub(every(i8x64, 0), x), x)
        return magnitudes(b, levels, fields(b, p, j)), x

    return elements, factors


def of_shifts(first: int, step: int, down: list[int]) -> Any:
    """IQ1: the lower 8 bits of indices from byte `first` on, then 8 u16 with 3 more of each, `step` bits apart.

    Where bit `down[i]` of the j-th two of these is set, elements 4i..4i+3 are shifted down.
    """

    def elements(b: Any, p: Any, j: int) -> Any:
        low = b.zext(load(b, b.add(p, I64(first)), i8x32.ir), i16x32.ir)
        above = b.zext(load(b, b.add(p, I64(first + 32)), i16x8.ir), i64x8.ir)
        high = multishift(b, [step * (i // 2) for i in range(8)], b.bitcast(above, i8x64.ir))
        index = b.or_(low, b.and_(b.bitcast(high, i16x32.ir), every(i16x32, 0x700)))
        fours, entries = b.bitcast(index, i64x8.ir), ir.Constant(f64x8, ir.Undefined)
        for i in range(8):
            four = b.extract_element(fours, I32(2 * j + i // 4))
            place = b.and_(b.lshr(four, I64(16 * (i % 4))), I64(0xFFFF))
            entries = b.insert_element(entries, b.bitcast(entry_iq1(b, place), ir.DoubleType()), I32(i))
        bits = constant(i32x16, [1 << n for n in down])
        found = b.and_(splat(b, i32x16, load(b, b.add(p, I64(first + 32 + 4 * j)), I32)), bits)
        twos = b.select(b.icmp_unsigned("!=", found, every(i32x16, 0)), every(i32x16, 0x02020202), every(i32x16, 0))
        return b.bitcast(b.sub(b.bitcast(entries, i32x16.ir), twos), i8x64.ir)

    return elements, lambda b, p, x, j: (elements(b, p, j), x)


def values_of(elements: Any) -> Any:
    """(block, run of 32) → elements, as `SuperBlock.values`: halves of registers."""

    def half(b: Any, p: Any, j: int) -> Any:
        both = elements(b, p, j // 2)
        return picked(b, both, both, [32 * (j % 2) + i for i in range(32)])

    v0, v1, v2, v3, v4, v5, v6, v7 = (op(i8x32, (types.intp,), lambda b, p, j=j: half(b, p, j)) for j in range(8))

    @device
    def values(p, j):
        if j < 4:
            return (v0(p) if j == 0 else v1(p)) if j < 2 else (v2(p) if j == 2 else v3(p))
        return (v4(p) if j == 4 else v5(p)) if j < 6 else (v6(p) if j == 6 else v7(p))

    return values


def products_of(factors: Any, j: int) -> Any:
    """(block, activations) → i16 sums of neighbouring products, of elements without offset where there are signs."""

    def body(b: Any, p: Any, x: Any) -> Any:
        both = factors(b, p, load(b, x, i8x64.ir), j)
        return intrinsic_call(b, "llvm.x86.avx512.pmaddubs.w.512", i16x32.ir, [*both])

    return op(i16x32, (types.intp, types.intp), body)


FORMS = {
    "IQ1_S": of_shifts(2, 3, [15] * 8 + [31] * 8),
    "IQ1_M": of_shifts(0, 4, [4 * (i // 2) + 3 for i in range(16)]),
    "IQ2_XXS": of_signs(IQ2_XXS_GRID, 43, fields_2(codes_iq2_xxs), negative_iq2_xxs),
    "IQ2_XS": of_signs(IQ2_XS_GRID, 43, fields_2(codes_iq2_xs), negative_iq2_xs),
    "IQ2_S": of_signs(IQ2_S_GRID, 43, fields_2(codes_iq2_s), bits_at(34)),
    "IQ3_XXS": of_signs(IQ3_XXS_GRID, 62, fields_4(IQ3_XXS_GRID), negative_iq3_xxs),
    "IQ3_S": of_signs(IQ3_S_GRID, 15, fields_4(IQ3_S_GRID), bits_at(74)),
}
VALUES_IQ = {name: values_of(elements) for name, (elements, _) in FORMS.items()}
WIDE_IQ = {name: [products_of(factors, j) for j in range(4)] for name, (_, factors) in FORMS.items()}
