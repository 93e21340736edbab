"""What lies beside a tile's block of 256, taken from eight blocks at once: scales twice each, pairs of mins, d, dmin.

Words of 32 bits are turned into columns as they are packed, and taken apart there.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.memory import pointer
from llamina.backends.cpu.kernels.simd import I32, I64, constant, f32x8, i8x32, i16x16, i32x8, lower_halves, op
from llamina.backends.cpu.tiling import UNIT


def _sixteen(b: Any, addresses: tuple[Any, ...], offset: int) -> list[Any]:
    """16 bytes of eight rows → four registers of 32-bit words, the lanes being rows."""
    four, all_8 = ir.VectorType(I32, 4), ir.Constant(i32x8.ir, list(range(8)))
    rows = []
    for address in addresses:
        rows.append(b.load(pointer(b, b.add(address, I64(offset)), four)))
        rows[-1].align = 1
    x = [b.shuffle_vector(rows[i], rows[i + 4], all_8) for i in range(4)]

    def both(p: Any, q: Any, low: list[int], high: list[int]) -> list[Any]:
        return [b.shuffle_vector(p, q, ir.Constant(i32x8.ir, lanes)) for lanes in (low, high)]

    ones, twos = (both(x[i], x[i + 1], [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]) for i in (0, 2))
    fours = [both(ones[i], twos[i], [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]) for i in (0, 1)]
    return [*fours[0], *fours[1]]


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
    both, first, second, third = _sixteen(b, addresses, 0)

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
    halves = b.bitcast(both, i16x16.ir)
    for n in (0, 1):
        picked = b.shuffle_vector(halves, halves, ir.Constant(i32x8.ir, list(range(n, 16, 2))))
        _put_unit(b, target, 24 + n, b.fpext(b.bitcast(picked, ir.VectorType(ir.HalfType(), 8)), f32x8.ir))


def _side_q6_k(b: Any, target: Any, *addresses: Any) -> None:
    """Sixteen signed bytes."""
    scales = _sixteen(b, addresses, 192)
    for j in range(16):
        _put_unit(b, target, j, _words_of(b, scales[j // 4], j % 4, j % 4, True))
    for j in range(8):
        _put_unit(b, target, 16 + j, _words_of(b, scales[j // 2], j % 2 * 2, j % 2 * 2 + 1, True))
    _put_unit(b, target, 24, lower_halves(b, *(b.add(address, I64(208)) for address in addresses)))


side_k, side_q6_k = (op(types.void, (types.intp,) * 9, body) for body in (_side_k, _side_q6_k))
