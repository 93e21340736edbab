"""Registers as tiles use them: a lane of 32 bits for each row, eight of them, or sixteen where products are that wide.

A unit of a tile is such a register in memory: four bytes (two words, one float) of every row.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_SDOT, HAS_VNNI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import lower_madd
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I32,
    Vec,
    constant,
    fill_of,
    intrinsic_call,
    loader,
    op,
    splat_of,
    storer,
)
from llamina.backends.cpu.tiling import LANES, UNIT

octets = Vec(f"i8x{4 * LANES}", ir.IntType(8), 4 * LANES)
words = Vec(f"i16x{2 * LANES}", ir.IntType(16), 2 * LANES)
ints, floats = Vec(f"i32x{LANES}", I32, LANES), Vec(f"f32x{LANES}", F32, LANES)

load_octets, load_words, load_floats = loader(octets), loader(words), loader(floats)
load_ints, store_floats = loader(ints), storer(floats)
zero_words, one_words = fill_of(words, 0), fill_of(words, 1)
zero_ints, zero_floats = fill_of(ints, 0), fill_of(floats, 0.0)
splat_int, splat_float = splat_of(ints, types.int32), splat_of(floats, types.float32)
as_floats = op(floats, (ints,), lambda b, x: b.sitofp(x, floats.ir))
fma = op(floats, (floats,) * 3, lambda b, *args: intrinsic_call(b, f"llvm.fma.v{LANES}f32", floats.ir, list(args)))


def _store_part(b: Any, address: Any, value: Any, n: Any) -> None:
    undef = ir.Constant(ints.ir, ir.Undefined)
    count = b.shuffle_vector(b.insert_element(undef, b.trunc(n, I32), I32(0)), undef, constant(ints, [0] * LANES))
    mask = b.icmp_signed("<", constant(ints, list(range(LANES))), count)
    ptr = pointer(b, address, floats.ir)
    intrinsic_call(b, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), [value, ptr, I32(1), mask])


store_floats_part = op(types.void, (types.intp, floats, types.intp), _store_part)


def _same_4(b: Any, address: Any) -> Any:
    word = b.load(pointer(b, address, I32))
    word.align = 1
    undef = ir.Constant(ints.ir, ir.Undefined)
    return b.shuffle_vector(b.insert_element(undef, word, I32(0)), undef, constant(ints, [0] * LANES))


same_4 = op(octets, (types.intp,), lambda b, address: b.bitcast(_same_4(b, address), octets.ir))
"""Four bytes in every lane."""
same_2 = op(words, (types.intp,), lambda b, address: b.bitcast(_same_4(b, address), words.ir))
"""Two 16-bit numbers in every lane."""


def _low_halves(b: Any, x: Any) -> Any:
    sixteen = constant(ints, [16] * LANES)
    return b.ashr(b.shl(b.bitcast(x, ints.ir), sixteen), sixteen)


low_halves = op(ints, (words,), _low_halves)
"""The lower 16 bits of each lane, sign-extended."""
low_words = op(
    words, (words,), lambda b, x: b.bitcast(b.and_(b.bitcast(x, ints.ir), constant(ints, [0xFFFF] * LANES)), words.ir)
)
"""The first word of each lane, and 0 for the second."""
as_words = op(words, (ints,), lambda b, x: b.bitcast(x, words.ir))


def times_of(factor: int) -> Any:
    """An intrinsic: lanes times a constant."""
    return op(ints, (ints,), lambda b, x: b.mul(x, constant(ints, [factor] * LANES)))


def _sdot(b: Any, total: Any, w: Any, x: Any) -> Any:
    """total + the sums of four neighbouring products, by Arm's instruction for signed bytes."""
    four = ir.VectorType(I32, 4)

    def half(v: Any, n: int, first: int) -> Any:
        return b.shuffle_vector(v, v, ir.Constant(ir.VectorType(I32, n), list(range(first, first + n))))

    halves = [
        intrinsic_call(
            b,
            "llvm.aarch64.neon.sdot.v4i32.v16i8",
            four,
            [half(total, 4, 4 * i), half(w, 16, 16 * i), half(x, 16, 16 * i)],
        )
        for i in (0, 1)
    ]
    return b.shuffle_vector(*halves, ir.Constant(ints.ir, list(range(8))))


def _add_dot(b: Any, total: Any, u: Any, s: Any) -> Any:
    """total + the sums of four neighbouring products, in 32 bits; Arm's takes u as signed."""
    if HAS_SDOT:
        return _sdot(b, total, u, s)
    operands = [total, b.bitcast(u, ints.ir), b.bitcast(s, ints.ir)]
    return intrinsic_call(b, "llvm.x86.avx512.vpdpbusd.512", ints.ir, operands)


def _add_madd(b: Any, total: Any, x: Any, y: Any) -> Any:
    if HAS_VNNI:
        kind = ir.FunctionType(ints.ir, [ints.ir, words.ir, words.ir])
        return b.asm(kind, "vpdpwssd $3, $2, $0", "=v,0,v,v", [total, x, y], False)  # LLVM would take it apart
    return b.add(total, lower_madd(b, x, y))


add_dot, add_madd = op(ints, (ints, octets, octets), _add_dot), op(ints, (ints, words, words), _add_madd)
"""total + the sums of four products of bytes, or of two of words, in each lane."""


def eight_of(store: Any) -> Any:
    """(target, 8 registers): one after the other."""

    @device
    def run(x, a, b, c, d, e, f, g, h):
        store(x, a)
        store(x + UNIT, b)
        store(x + 2 * UNIT, c)
        store(x + 3 * UNIT, d)
        store(x + 4 * UNIT, e)
        store(x + 5 * UNIT, f)
        store(x + 6 * UNIT, g)
        store(x + 7 * UNIT, h)

    return run


store_eight_floats, store_eight_ints = eight_of(store_floats), eight_of(storer(ints))
