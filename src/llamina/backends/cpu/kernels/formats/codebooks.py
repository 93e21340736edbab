"""The codebooks of the IQ formats, and how registers of weights are made of their entries and signs.

A codebook is an array of words in the compiled code, 8 (IQ3: 4) bytes to a word, the first weight in the lowest: four
(eight) of them loaded side by side are a register of weights. Words are joined as floats are, for which a load and an
insertion are one instruction.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from llamina.backends.cpu.features import HAS_AVX2
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import lower_lookup
from llamina.backends.cpu.kernels.vector.simd import (
    I16,
    I32,
    I64,
    Vec,
    constant,
    i8x32,
    i16x8,
    i16x16,
    intrinsic_call,
    op,
)
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
    """(builder) → an array of the rows' bytes, as one unsigned integer each."""
    word = I64 if rows.shape[1] == 8 else I32
    entries = np.ascontiguousarray(rows).view(f"<u{rows.shape[1]}")[:, 0].tolist()
    array = ir.ArrayType(word, len(entries))

    def body(b: Any) -> Any:
        table = b.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(b.module, array, name)
            table.initializer = ir.Constant(array, entries)
            table.linkage, table.global_constant, table.unnamed_addr, table.align = "internal", True, True, 64
        return table

    return body


def entry_of(table: Any, result: Any = types.uint64) -> Any:
    """A lookup without checks: index → the row's bytes."""
    return op(result, (types.intp,), lambda b, index: b.load(b.gep(table(b), [I64(0), index], inbounds=True)))


table_iq1 = table_of("llamina_iq1", 8 * IQ1_GRID + np.int8(10))
"""The bytes of a shift up: 8 * grid + 1 + 9."""
table_iq2_xs, table_iq2_s = table_of("llamina_iq2_xs", IQ2_XS_GRID), table_of("llamina_iq2_s", IQ2_S_GRID)
grid_iq1, grid_iq2_xs, grid_iq2_s = entry_of(table_iq1), entry_of(table_iq2_xs), entry_of(table_iq2_s)
grid_iq2_xxs = entry_of(table_of("llamina_iq2_xxs", IQ2_XXS_GRID))
grid_iq3_xxs = entry_of(table_of("llamina_iq3_xxs", IQ3_XXS_GRID), types.uint32)
grid_iq3_s = entry_of(table_of("llamina_iq3_s", IQ3_S_GRID), types.uint32)
even_signs = entry_of(table_of("llamina_even_signs", EVEN_SIGNS))
"""7 bits → 8 bytes of 1 or -1."""


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
    part = ir.DoubleType() if len(words) == 4 else ir.FloatType()
    value = ir.Constant(ir.VectorType(part, len(words)), ir.Undefined)
    for i, word in enumerate(words):
        value = b.insert_element(value, b.bitcast(word, part), I32(i))
    return b.bitcast(value, i8x32.ir)


join_8s = op(i8x32, (types.uint64,) * 4, _join)
join_4s = op(i8x32, (types.uint32,) * 8, _join)


def _signed(b: Any, x: Any, signs: Any) -> Any:
    """Bytes times 1 or -1."""
    return intrinsic_call(b, "llvm.x86.avx2.psign.b", i8x32.ir, [x, signs]) if HAS_AVX2 else b.mul(x, signs)


def raised(by: int) -> Any:
    return op(i8x32, (i8x32,), lambda b, x: b.add(x, every(i8x32, by)))


signed = op(i8x32, (i8x32, i8x32), _signed)


def _of_bits(b: Any, negative: Any) -> Any:
    return b.or_(b.sext(negative, i8x32.ir), every(i8x32, 1))


def _load_signs(b: Any, address: Any) -> Any:
    return _of_bits(b, b.bitcast(load(b, address, I32), ir.VectorType(ir.IntType(1), 32)))


load_signs = op(i8x32, (types.intp,), _load_signs)
"""32 bits → 32 bytes: -1 where the bit is set, else 1."""


def signs_of_words(run: int) -> Any:
    """Eight words → 8 signs of each of four: the top 7 bits, and an eighth that leaves an even number negative."""
    parity = tuple((i.bit_count() & 1) << 7 for i in range(16))
    spread = [16 * (i // 16) + 8 * run + 2 * (i // 8) for i in range(32)]  # each half has all eight

    def body(b: Any, address: Any) -> Any:
        undef = ir.Constant(i16x8.ir, ir.Undefined)
        words = b.shuffle_vector(
            load(b, address, i16x8.ir), undef, ir.Constant(ir.VectorType(I32, 16), [*range(8)] * 2)
        )
        seven = b.lshr(words, every(i16x16, 9))
        mixed = b.xor(seven, b.lshr(words, every(i16x16, 13)))  # as odd in its lower four bits as all seven are
        odd = lower_lookup(b, parity, b.bitcast(mixed, i8x32.ir))
        eight = b.or_(b.bitcast(seven, i8x32.ir), odd)
        bits = constant(i8x32, [1 << i % 8 for i in range(32)])
        each = b.shuffle_vector(eight, ir.Constant(i8x32.ir, ir.Undefined), ir.Constant(ir.VectorType(I32, 32), spread))
        return _of_bits(b, b.icmp_unsigned("==", b.and_(each, bits), bits))

    return op(i8x32, (types.intp,), body)


signs_of_first_words, signs_of_last_words = signs_of_words(0), signs_of_words(1)


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
