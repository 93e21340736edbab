"""Codebooks in registers: IQ2 and IQ3, 64 elements at a time, by instructions that permute bytes (AVX-512 VBMI, GFNI).

An entry is a code of 16 bits here, 8 fields of 2 bits (weights of 3 magnitudes) or 4 of 4 (of 8). `vpermi2w` looks up
32 words in 64, `vpermi2b` 64 bytes in 128, and indices' upper bits choose between the results for the parts of the
codebook. `vpmultishiftqb` brings a field to every byte, and `vpermb` replaces it by its magnitude; neither minds the
bits above. Signs are the bits of masks, by which activations are negated; where there are seven for 8 weights,
`vgf2p8affineqb` adds the eighth, their parity.

Functions take an LLVM builder. What several of them compute of a block is computed once: LLVM sees that it is the same.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.codebooks import every, i64x4, load
from llamina.backends.cpu.kernels.vector.products import i8x64, i16x32
from llamina.backends.cpu.kernels.vector.simd import I32, I64, Vec, constant, i8x32, i32x8, intrinsic_call, op
from llamina.quant.grids import IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID

BITS = ir.VectorType(ir.IntType(1), 64)


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
            upper.append(mask_at(b, p, 66))
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


def signs_iq2_xs(b: Any, p: Any) -> Any:
    raw = load(b, b.add(p, I64(2)), i8x64.ir)
    return with_parity(b, picked(b, raw, raw, list(range(1, 64, 2))), 1)


def negative_iq3_xxs(b: Any, p: Any, j: int) -> Any:
    return of_words(b, load(b, b.add(p, I64(66)), i32x8.ir), j)


def mask_at(b: Any, p: Any, at: int) -> Any:
    """64 bits of a block."""
    return b.bitcast(load(b, b.add(p, I64(at)), I64), BITS)


# ---- elements -----------------------------------------------------------------------------------------------


def magnitudes(b: Any, levels: list[int], fields: Any) -> Any:
    """By the lowest bits of bytes, as many as tell the levels apart."""
    entries = levels + [0] * (-len(levels) % 4)
    table = constant(i8x64, entries * (64 // len(entries)))
    return intrinsic_call(b, "llvm.x86.avx512.permvar.qi.512", i8x64.ir, [table, fields])


def negated(b: Any, x: Any, mask: Any) -> Any:
    return b.select(mask, b.sub(every(i8x64, 0), x), x)


def elements_of(grid: NDArray[np.int8], fields: Any, negative: Any, offset: int) -> Any:
    """(builder, block, j) → elements 64j..64j+63 of a block, signed and raised by the offset."""
    levels = [int(level) for level in np.unique(grid)]
    up, down = [offset + n for n in levels], [offset - n for n in levels]

    def elements(b: Any, p: Any, j: int) -> Any:
        found = fields(b, p, j)
        return b.select(negative(b, p, j), magnitudes(b, down, found), magnitudes(b, up, found))

    return elements


def factors_of(grid: NDArray[np.int8], fields: Any, negative: Any) -> Any:
    """(builder, block, what was found early, activations, j) → magnitudes, and activations with the weights' signs."""
    levels = [int(level) for level in np.unique(grid)]
    return lambda b, p, found, x, j: (magnitudes(b, levels, fields(b, p, j)), negated(b, x, negative(b, p, j)))


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


OF_IQ2_XXS = IQ2_XXS_GRID, fields_2(codes_iq2_xxs), negative_iq2_xxs
OF_IQ2_XS = IQ2_XS_GRID, fields_2(codes_iq2_xs), lambda b, p, j: mask_of(b, signs_iq2_xs(b, p), j)
OF_IQ3_XXS = IQ3_XXS_GRID, fields_4(IQ3_XXS_GRID), negative_iq3_xxs
OF_IQ3_S = IQ3_S_GRID, fields_4(IQ3_S_GRID), lambda b, p, j: mask_at(b, p, 74 + 8 * j)
VALUES = {
    "IQ2_XXS": values_of(elements_of(*OF_IQ2_XXS, offset=43)),
    "IQ2_XS": values_of(elements_of(*OF_IQ2_XS, offset=43)),
    "IQ3_XXS": values_of(elements_of(*OF_IQ3_XXS, offset=62)),
    "IQ3_S": values_of(elements_of(*OF_IQ3_S, offset=15)),
}
FACTORS = {
    "IQ2_XXS": factors_of(*OF_IQ2_XXS),
    "IQ3_XXS": factors_of(*OF_IQ3_XXS),
    "IQ3_S": factors_of(*OF_IQ3_S),
}
