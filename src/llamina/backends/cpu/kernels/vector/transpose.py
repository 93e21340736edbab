"""Eight rows transposed: 32-bit words of all rows side by side, a unit of the tile apart."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.products import lower_lookup
from llamina.backends.cpu.kernels.vector.simd import I32, I64, constant, i8x32, i16x16, i32x8, op
from llamina.backends.cpu.tiling import UNIT


def transposed(b: Any, rows: list[Any]) -> list[Any]:
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


def transpose_16(b: Any, addresses: tuple[Any, ...], offset: int) -> list[Any]:
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


def put_columns(b: Any, target: Any, first: int, words: list[Any]) -> None:
    for word, value in enumerate(words, first):
        b.store(value, pointer(b, b.add(target, I64(UNIT * word)), value.type)).align = 1


def _put(b: Any, target: Any, words: list[Any]) -> None:
    put_columns(b, target, 0, words)


def _put_words(b: Any, target: Any, words: list[Any]) -> None:
    """Of four signed bytes the first and third as words, then the second and fourth: what takes fewest instructions."""
    eight = constant(i16x16, [8] * 16)
    both = [b.bitcast(word, i16x16.ir) for word in words]
    _put(b, target, [b.ashr(half, eight) for word in both for half in (b.shl(word, eight), word)])


def _put_raised(b: Any, target: Any, words: list[Any]) -> None:
    """Signed bytes, 128 more than they are."""
    _put(b, target, [b.xor(word, constant(i32x8, [0x80808080] * 8)) for word in words])


def columns_of(put: Any) -> Any:
    """An intrinsic: 32 bytes of eight rows in registers."""

    def body(b: Any, target: Any, *rows: Any) -> None:
        put(b, target, transposed(b, [b.bitcast(row, i32x8.ir) for row in rows]))

    return op(types.void, (types.intp, *(i8x32,) * 8), body)


def columns_at(put: Any) -> Any:
    """An intrinsic: 32 bytes of eight rows in memory."""

    def body(b: Any, target: Any, *addresses: Any) -> None:
        put(b, target, _transpose_32(b, addresses))

    return op(types.void, (types.intp,) * 9, body)


def _transpose_32(b: Any, addresses: tuple[Any, ...]) -> list[Any]:
    """32 bytes of eight rows in memory, from where halves of registers are cheaper to load than to swap."""
    return [word for offset in (0, 16) for word in transpose_16(b, addresses, offset)]


def _memory_columns(b: Any, target: Any, source: Any, stride: Any) -> None:
    """Of eight rows in memory."""
    addresses = tuple(b.add(source, b.mul(stride, I64(r))) for r in range(8))
    _put(b, target, _transpose_32(b, addresses))


def _halves_into(b: Any, target: Any, words: list[Any], levels: tuple[int, ...]) -> None:
    """The lower halves of all bytes, then the upper ones; or what the levels are for them."""
    fours, mask = constant(i32x8, [4] * 8), constant(i32x8, [0x0F0F0F0F] * 8)
    for word, value in enumerate(words):
        for at, half in ((0, value), (len(words), b.lshr(value, fours))):
            put = b.and_(half, mask)
            if levels:
                put = b.bitcast(lower_lookup(b, levels, b.bitcast(put, i8x32.ir)), i32x8.ir)
            b.store(put, pointer(b, b.add(target, I64(UNIT * (at + word))), put.type)).align = 1


def sixteen_columns(levels: tuple[int, ...]) -> Any:
    """An intrinsic: of 16 bytes of eight rows, the columns of their lower halves, then of their upper ones."""

    def body(b: Any, target: Any, *addresses: Any) -> None:
        _halves_into(b, target, transpose_16(b, addresses, 0), levels)

    return op(types.void, (types.intp,) * 9, body)


byte_columns, word_columns, raised_columns = (columns_of(put) for put in (_put, _put_words, _put_raised))
byte_columns_at, word_columns_at, raised_columns_at = (columns_at(put) for put in (_put, _put_words, _put_raised))
nibble_columns = columns_at(lambda b, target, words: _halves_into(b, target, words, ()))
memory_columns = op(types.void, (types.intp,) * 3, _memory_columns)
