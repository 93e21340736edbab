"""Codebooks in memory: what is too big for registers, 64 elements at a time (AVX-512 VBMI, GFNI).

The 32 indices of a block are computed side by side and stored, those of eight rows before any is used: so the loads of
entries, one by one, wait for nothing.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.formats.codebooks import every, load, splat, table_iq1, table_iq2_s, table_iq2_xs
from llamina.backends.cpu.kernels.formats.iq_registers import (
    FACTORS,
    mask_at,
    multishift,
    negated,
    picked,
    signs_iq2_xs,
)
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import i8x64, i16x32, i32x16
from llamina.backends.cpu.kernels.vector.simd import I16, I32, I64, constant, i8x32, intrinsic_call, op

i64x2, i64x8 = ir.VectorType(I64, 2), ir.VectorType(I64, 8)
SIGNS_AT = 64  # behind the indices, where signs are found early as well


def indices(first: int, at: int, part: int, step: int, bits: int) -> Any:
    """(block, target) → None: 32 u16, of which blocks have the lower 8 bits from byte `first` on.

    From byte `at` on are the upper ones, those of four indices in each u8 or u16, `step` bits apart.
    """

    def body(b: Any, p: Any, target: Any) -> None:
        low = b.zext(load(b, b.add(p, I64(first)), i8x32.ir), i16x32.ir)
        above = b.zext(load(b, b.add(p, I64(at)), ir.VectorType(ir.IntType(part), 8)), i64x8)
        high = multishift(b, [step * (i // 2) for i in range(8)], b.bitcast(above, i8x64.ir))
        index = b.or_(low, b.and_(b.bitcast(high, i16x32.ir), every(i16x32, ((1 << bits) - 1) << 8)))
        store(b, index, target)

    return op(types.void, (types.intp, types.intp), body)


def store(b: Any, value: Any, target: Any) -> None:
    b.store(value, pointer(b, target, value.type)).align = 1


def _words_iq2_xs(b: Any, p: Any, target: Any) -> None:
    """Indices, then signs."""
    store(b, b.and_(load(b, b.add(p, I64(2)), i16x32.ir), every(i16x32, 511)), target)
    store(b, signs_iq2_xs(b, p), b.add(target, I64(SIGNS_AT)))


def loaded(b: Any, table: Any, found: Any, j: int) -> Any:
    """The entries that the j-th 8 of the indices at `found` are for."""
    rows, pairs, none = table(b), [], ir.Constant(i64x2, ir.Undefined)
    upper = ir.FunctionType(i64x2, [i64x2, I64, I64])
    for i in range(0, 8, 2):
        first, second = (b.zext(load(b, b.add(found, I64(16 * j + 2 * n)), I16), I64) for n in (i, i + 1))
        low = b.insert_element(none, b.load(b.gep(rows, [I64(0), first], inbounds=True)), I32(0))
        both = [low, b.ptrtoint(rows, I64), second]
        pairs.append(b.asm(upper, "vmovhps ($2,$3,8), $1, $0", "=v,v,r,r", both, False))  # LLVM takes two instructions
    halves = [picked(b, *pairs[i : i + 2], [0, 1, 2, 3]) for i in (0, 2)]
    return b.bitcast(picked(b, *halves, list(range(8))), i8x64.ir)


def of_shifts(at: int, down: list[int]) -> Any:
    """IQ1: where bit `down[i]` of the j-th 32 bits from byte `at` on is set, elements 4i..4i+3 are shifted down."""

    def factors(b: Any, p: Any, found: Any, x: Any, j: int) -> Any:
        bits = constant(i32x16, [1 << n for n in down])
        set_bits = b.and_(splat(b, i32x16, load(b, b.add(p, I64(at + 4 * j)), I32)), bits)
        twos = b.select(b.icmp_unsigned("!=", set_bits, every(i32x16, 0)), every(i32x16, 0x02020202), every(i32x16, 0))
        entries = b.bitcast(loaded(b, table_iq1, found, j), i32x16.ir)
        return b.bitcast(b.sub(entries, twos), i8x64.ir), x

    return factors


def of_signs(table: Any, negative: Any) -> Any:
    """IQ2: magnitudes, and activations with the weights' signs."""
    return lambda b, p, found, x, j: (loaded(b, table, found, j), negated(b, x, negative(b, p, found, j)))


def products_of(factors: Any, j: int) -> Any:
    """(block, what was found early, activations) → i16 sums of neighbouring products."""

    def body(b: Any, p: Any, found: Any, x: Any) -> Any:
        both = factors(b, p, found, load(b, x, i8x64.ir), j)
        return intrinsic_call(b, "llvm.x86.avx512.pmaddubs.w.512", i16x32.ir, [*both])

    return op(i16x32, (types.intp, types.intp, types.intp), body)


INDICES = {
    "IQ1_S": indices(2, 34, 16, 3, 3),
    "IQ1_M": indices(0, 32, 16, 4, 3),
    "IQ2_XS": op(types.void, (types.intp, types.intp), _words_iq2_xs),
    "IQ2_S": indices(2, 66, 8, 2, 2),
}
LOADED = {
    "IQ1_S": of_shifts(34, [15] * 8 + [31] * 8),
    "IQ1_M": of_shifts(32, [4 * (i // 2) + 3 for i in range(16)]),
    "IQ2_XS": of_signs(table_iq2_xs, lambda b, p, found, j: mask_at(b, found, SIGNS_AT + 8 * j)),
    "IQ2_S": of_signs(table_iq2_s, lambda b, p, found, j: mask_at(b, p, 34 + 8 * j)),
}
WIDE_IQ = {name: [products_of(of, j) for j in range(4)] for name, of in (FACTORS | LOADED).items()}
