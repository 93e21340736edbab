"""Eight rows turned into columns: 32-bit words of all rows side by side, a unit of the tile apart."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.memory import pointer
from llamina.backends.cpu.kernels.simd import I32, I64, constant, i8x32, i16x16, i32x8, op
from llamina.backends.cpu.tiling import UNIT


def _turned(b: Any, rows: list[Any]) -> list[Any]:
    """Eight registers of eight 32-bit words → the first words of all, the second words of all, …"""

    def both(pairs: list[tuple[Any, Any]], low: list[int], high: list[int]) -> list[Any]:
        return [b.shuffle_vector(x, y, ir.Constant(i32x8.ir, lanes)) for x, y in pairs for lanes in (low, high)]

    ones = both(
        [(rows[i], rows[i + 1]) for i in (0, 2, 4, 6)], [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    )
    pairs = [(ones[i], ones[i + 2]) for i in (0, 1, 4, 5)]
    twos = both(pairs, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
    ends = both([(twos[i], twos[4 + i]) for i in range(4)], [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])
    return [*ends[::2], *ends[1::2]]


def _columns(b: Any, target: Any, rows: list[Any]) -> None:
    for word, value in enumerate(_turned(b, rows)):
        b.store(value, pointer(b, b.add(target, I64(UNIT * word)), i32x8.ir)).align = 1


def _byte_columns(b: Any, target: Any, *rows: Any) -> None:
    _columns(b, target, [b.bitcast(row, i32x8.ir) for row in rows])


def _word_columns(b: Any, target: Any, *rows: Any) -> None:
    """Signed bytes made words."""
    for half in (0, 16):
        index = ir.Constant(ir.VectorType(I32, 16), list(range(half, half + 16)))
        wide = [b.bitcast(b.sext(b.shuffle_vector(row, row, index), i16x16.ir), i32x8.ir) for row in rows]
        _columns(b, b.add(target, I64(half // 2 * UNIT)), wide)


def _memory_columns(b: Any, target: Any, source: Any, stride: Any) -> None:
    """Of eight rows in memory."""
    rows = []
    for r in range(8):
        rows.append(b.load(pointer(b, b.add(source, b.mul(stride, I64(r))), i32x8.ir)))
        rows[-1].align = 1
    _columns(b, target, rows)


def _nibble_columns(b: Any, target: Any, *addresses: Any) -> None:
    """32 bytes of eight rows: first the columns of their lower halves, then of their upper ones."""
    rows = []
    for address in addresses:
        rows.append(b.load(pointer(b, address, i32x8.ir)))
        rows[-1].align = 1
    fours, mask = constant(i32x8, [4] * 8), constant(i32x8, [0x0F0F0F0F] * 8)
    for word, value in enumerate(_turned(b, rows)):
        for at, half in ((0, value), (8, b.lshr(value, fours))):
            b.store(b.and_(half, mask), pointer(b, b.add(target, I64(UNIT * (at + word))), i32x8.ir)).align = 1


byte_columns, word_columns = (
    op(types.void, (types.intp, *(i8x32,) * 8), body) for body in (_byte_columns, _word_columns)
)
nibble_columns = op(types.void, (types.intp,) * 9, _nibble_columns)
memory_columns = op(types.void, (types.intp,) * 3, _memory_columns)
