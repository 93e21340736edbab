"""The scales of a GEMM tile's block of 256, taken from eight blocks at once: scales twice each, pairs of mins, d, dmin.

Words of 32 bits are transposed as they are packed, and unpacked afterwards.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    constant,
    float_halves,
    i8x32,
    i16x16,
    i32x8,
    lower_halves,
    op,
)
from llamina.backends.cpu.kernels.vector.transpose import transpose_16
from llamina.backends.cpu.tiling import UNIT


def _words_of(b: Any, x: Any, first: int, second: int, signed: bool) -> Any:
    """Two of a lane's four bytes as its two words."""
    none, octets = ir.Constant(i8x32.ir, [0] * 32), b.bitcast(x, i8x32.ir)
    order = [32, first, 32, second] if signed else [first, 32, second, 32]
    lanes = [byte if byte == 32 else 4 * lane + byte for lane in range(8) for byte in order]
    value = b.bitcast(b.shuffle_vector(octets, none, ir.Constant(ir.VectorType(I32, 32), lanes)), i16x16.ir)
    return b.ashr(value, constant(i16x16, [8] * 16)) if signed else value


def _put_unit(b: Any, target: Any, unit: int, value: Any) -> None:
    b.store(value, pointer(b, b.add(target, I64(UNIT * unit)), value.type)).align = 1


def _side_k(b: Any, target: Any, *addresses: Any) -> None:
    """Of K-quants: d, dmin, and eight scales and mins in 12 bytes: four of each in 6 bits, the others as 4 + 2."""
    both, first, second, third = transpose_16(b, addresses, 0)

    def every(value: int) -> Any:
        return constant(i32x8, [value] * 8)

    def upper(low: Any, high: Any) -> Any:
        return b.or_(b.and_(low, every(0x0F0F0F0F)), b.and_(b.lshr(high, every(2)), every(0x30303030)))

    scales = (b.and_(first, every(0x3F3F3F3F)), upper(third, first))
    mins = (b.and_(second, every(0x3F3F3F3F)), upper(b.lshr(third, every(4)), second))
    for j in range(8):
        _put_unit(b, target, 2 * j, _words_of(b, scales[j // 4], j % 4, j % 4, False))
    for j in range(4):
        _put_unit(b, target, 16 + j, _words_of(b, mins[j // 2], j % 2 * 2, j % 2 * 2 + 1, False))
    for n in (0, 1):
        _put_unit(b, target, 24 + n, float_halves(b, both, n))


def _side_q6_k(b: Any, target: Any, *addresses: Any) -> None:
    """Sixteen signed bytes."""
    scales = transpose_16(b, addresses, 192)
    for j in range(16):
        _put_unit(b, target, j, _words_of(b, scales[j // 4], j % 4, j % 4, True))
    for j in range(8):
        _put_unit(b, target, 16 + j, _words_of(b, scales[j // 2], j % 2 * 2, j % 2 * 2 + 1, True))
    _put_unit(b, target, 24, lower_halves(b, *(b.add(address, I64(208)) for address in addresses)))


side_k, side_q6_k = (op(types.void, (types.intp,) * 9, body) for body in (_side_k, _side_q6_k))
