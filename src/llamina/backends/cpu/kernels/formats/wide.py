"""Products of superblocks and activations, 64 at a time in registers of 512 bits: four functions a format.

They take a block, what was found of it early, and activations. They give i16 sums of neighbouring products, of what
`SuperBlock.values` are for runs 0 and 1, 2 and 3, and so on, or of `sizes` and `signs` where a format has these.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_AVX512, HAS_VBMI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.blocks import IQ4, SUPERBLOCKS
from llamina.backends.cpu.kernels.formats.iq_loads import INDICES, WIDE_IQ
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import (
    i8x64,
    i16x32,
    load_i8x64,
    mul_i8_i8_wide,
    mul_u8_i8_wide,
)
from llamina.backends.cpu.kernels.vector.simd import I32, constant, i8x32, intrinsic_call, op


def _twice(b: Any, address: Any) -> Any:
    raw = b.load(pointer(b, address, i8x32.ir))
    raw.align = 1
    return b.shuffle_vector(raw, raw, ir.Constant(ir.VectorType(I32, 64), [*range(32)] * 2))


twice = op(i8x64, (types.intp,), _twice)
"""32 bytes, two times."""


def field(bits: int, to: int, *at: int) -> Any:
    """An intrinsic: `bits` of every byte, brought to bit `to`; bytes are of as many equal parts as there are `at`.

    Words are shifted, for want of shifts of bytes, all in one direction; what comes over from the neighbour is masked.
    """
    by = [place - to for place in at for _ in range(32 // len(at))]
    assert all(n >= 0 for n in by) or all(n <= 0 for n in by)

    def body(b: Any, x: Any) -> Any:
        words = b.bitcast(x, i16x32.ir)
        if any(by):
            shift = b.lshr if max(by) > 0 else b.shl
            words = shift(words, constant(i16x32, [abs(n) for n in by]))
        return b.and_(b.bitcast(words, i8x64.ir), constant(i8x64, [((1 << bits) - 1) << to] * 64))

    return op(i8x64, (i8x64,), body)


def wide_q6_k(j: int) -> Any:
    low, high = field(4, 0, 4 * (j % 2)), field(2, 4, 4 * (j % 2), 4 * (j % 2) + 2)
    at, above = 64 * (j // 2), 128 + 32 * (j // 2)
    return device(lambda p: low(load_i8x64(p + at)) | high(twice(p + above)))


def wide_two_bits(first: int) -> Any:
    def of(j: int) -> Any:
        low, at = field(2, 0, 4 * (j % 2), 4 * (j % 2) + 2), first + 32 * (j // 2)
        return device(lambda p: low(twice(p + at)))

    return of


def wide_q3_k(j: int) -> Any:
    low, high = wide_two_bits(32)(j), field(1, 2, 2 * j, 2 * j + 1)
    return device(lambda p: low(p) | high(twice(p)))


def _nibble_runs(b: Any, address: Any) -> Any:
    """32 bytes of two runs, of which the low nibbles of 16 bytes come before their high ones, as IQ4's levels."""
    raw = b.load(pointer(b, address, i8x32.ir))
    raw.align = 1
    lanes = [*range(16), *range(16), *range(16, 32), *range(16, 32)]
    words = b.bitcast(b.shuffle_vector(raw, raw, ir.Constant(ir.VectorType(I32, 64), lanes)), i16x32.ir)
    shifted = b.bitcast(b.lshr(words, constant(i16x32, ([0] * 8 + [4] * 8) * 2)), i8x64.ir)
    places = b.and_(shifted, constant(i8x64, [15] * 64))
    levels = constant(i8x64, [level & 255 for level in IQ4] * 4)
    return intrinsic_call(b, "llvm.x86.avx512.pshuf.b.512", i8x64.ir, [levels, places])


nibble_runs = op(i8x64, (types.intp,), _nibble_runs)


def wide_iq4_xs(j: int) -> Any:
    at = 8 + 32 * j
    return device(lambda p: nibble_runs(p + at))


MAKERS = {
    "Q2_K": wide_two_bits(16),
    "Q3_K": wide_q3_k,
    "Q6_K": wide_q6_k,
    "IQ4_XS": wide_iq4_xs,
    "TQ2_0": wide_two_bits(0),
}


def times(elements: Any, signed: bool) -> Any:
    product = mul_i8_i8_wide if signed else mul_u8_i8_wide
    return device(lambda p, found, x: product(elements(p), load_i8x64(x)))


WIDE = {name: [times(make(j), SUPERBLOCKS[name].signed) for j in range(4)] for name, make in MAKERS.items()}
WIDE = WIDE | WIDE_IQ if HAS_VBMI else WIDE if HAS_AVX512 else {}
"""The formats that gain by it: Q4_K and Q5_K, of which 256 bits at a time are quickly unpacked, do not."""
EARLY = INDICES if HAS_VBMI else {}
"""(block, target of 96 bytes): finds what the products of a block want to be given, for all rows before the first."""
