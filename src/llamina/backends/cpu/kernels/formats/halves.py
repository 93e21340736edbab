"""F16 and BF16 weights as block floating point: blocks of 32 words (int16), times a power of two for each block.

Words are as large as their products' sums allow, which are of 32 bits. By Cauchy and Schwarz no sum is larger than the
product of the lengths (norms) of the two blocks: that of weights is scaled to less than 2**16, that of activations
(`quantize.i16`) to less than 2**15. F16's 11 bits are whole in words of 1024 and more.

A number is rounded by adding what makes float32's last bit worth one: the last 16 bits are the word then.

What words are worth is found once, when a model is loaded, and kept beside the weights as float32's exponents:

    exponents   uint8 [rows / 8, blocks of a row, 8 rows]
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.formats.blocks import Block32
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.simd import F32, I8, I16, I32, I64, constant, f32x8, i32x8, intrinsic_call, op
from llamina.backends.cpu.kernels.vector.transpose import put_columns, transposed

i8x8 = ir.VectorType(I8, 8)
I16X16, I16X32 = ir.VectorType(I16, 16), ir.VectorType(I16, 32)
F32X16, I32X16 = ir.VectorType(F32, 16), ir.VectorType(I32, 16)
LENGTH = 16  # of a block of weights: as a power of two, at the most
MOST = 32767  # a word, and the length of a block of activations
SLACK = 1.001  # by which squared lengths are taken for more: sums are rounded, and so are words
LEAST = 27  # exponent of float32, here and below: of squared lengths, below which all are alike
HUGE, INFINITE = 232, 255  # of 2**105, and of infinity
ROUNDS = 1.5 * 2**23  # added to a number, its whole part is in float32's last bits
FORM = Block32(None, 64, MOST, words=True)


class Numbers(NamedTuple):
    """How a format's elements are read."""

    load: Callable[[Any, Any], list[Any]]  # 32 elements from an address, as two registers of float32
    words: Callable[[Any, Any, Any], Any]  # the last 16 bits of these two, in the order of elements


def _load(b: Any, address: Any, kind: ir.Type) -> Any:
    value = b.load(pointer(b, address, kind))
    value.align = 1
    return value


def _all(value: int) -> ir.Constant:
    return ir.Constant(I32X16, [value] * 16)


def _f16_halves(b: Any, address: Any) -> list[Any]:
    kind = ir.VectorType(ir.HalfType(), 16)
    return [b.fpext(_load(b, b.add(address, I64(32 * n)), kind), F32X16) for n in (0, 1)]


def _words_of_halves(b: Any, x: Any, y: Any) -> Any:
    """The words of the first 16 elements, then the others'."""
    lower = ir.Constant(ir.VectorType(I32, 32), list(range(0, 64, 2)))
    return b.bitcast(b.shuffle_vector(b.bitcast(x, I16X32), b.bitcast(y, I16X32), lower), I32X16)


def _words_of_neighbours(b: Any, x: Any, y: Any) -> Any:
    return b.or_(b.and_(b.bitcast(x, I32X16), _all(0xFFFF)), b.shl(b.bitcast(y, I32X16), _all(16)))


def _bf16_neighbours(b: Any, address: Any) -> list[Any]:
    """The elements at even places, then those at odd ones: either are a shift or a mask away from float32."""
    pairs = _load(b, address, I32X16)
    return [b.bitcast(v, F32X16) for v in (b.shl(pairs, _all(16)), b.and_(pairs, _all(-65536)))]


NUMBERS = {
    "F16": Numbers(_f16_halves, _words_of_halves),
    "BF16": Numbers(_bf16_neighbours, _words_of_neighbours),
}


def _fma(b: Any, *args: Any) -> Any:
    return intrinsic_call(b, "llvm.fma.v16f32", F32X16, list(args))


def _half(b: Any, value: Any, n: int) -> Any:
    return b.shuffle_vector(value, value, ir.Constant(i32x8.ir, list(range(8 * n, 8 * n + 8))))


def _of_rows(b: Any, rows: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Eight registers of sixteen lanes → one whose lane r combines those of register r, always in the same order."""
    rows = [combine(_half(b, row, 0), _half(b, row, 1)) for row in rows]
    for size in (1, 2, 4):
        first = [i // size % 2 == 0 for i in range(8)]
        kept = ir.Constant(i32x8.ir, [i if mine else 8 + i for i, mine in enumerate(first)])
        moved = ir.Constant(i32x8.ir, [i + size if mine else 8 + i - size for i, mine in enumerate(first)])
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [combine(b.shuffle_vector(x, y, kept), b.shuffle_vector(x, y, moved)) for x, y in pairs]
    return rows[0]


def _scales(b: Any, blocks: list[list[Any]]) -> Any:
    """What the words of eight blocks are worth, as float32's bits; infinite where an element is HUGE, or no number."""

    def all_8(value: int) -> ir.Constant:
        return constant(i32x8, [value] * 8)

    def greater(x: Any, y: Any) -> Any:
        return b.select(b.icmp_signed(">", x, y), x, y)

    squares = _of_rows(b, [_fma(b, y, y, b.fmul(x, x)) for x, y in blocks], b.fadd)
    largest = _of_rows(
        b, [greater(*(b.and_(b.bitcast(v, I32X16), _all(0x7FFFFFFF)) for v in block)) for block in blocks], greater
    )
    bits = b.bitcast(b.fmul(squares, constant(f32x8, [SLACK] * 8)), i32x8.ir)
    squared, most = (b.lshr(v, all_8(23)) for v in (bits, largest))  # exponents
    root = b.ashr(b.sub(greater(squared, all_8(LEAST)), all_8(125)), all_8(1))
    worth = greater(b.add(root, all_8(127 - LENGTH)), b.sub(most, all_8(14)))
    worth = b.select(b.icmp_signed("<", squared, all_8(INFINITE)), worth, b.sub(most, all_8(12)))  # √32 times the most
    return b.shl(b.select(b.icmp_signed("<", most, all_8(HUGE)), worth, all_8(INFINITE)), all_8(23))


def exponents_of(numbers: Numbers) -> Any:
    """An intrinsic (target, eight blocks): what their words are worth, as exponents."""

    def body(b: Any, target: Any, *rows: Any) -> None:
        scales = _scales(b, [numbers.load(b, row) for row in rows])
        exponents = b.trunc(b.lshr(scales, constant(i32x8, [23] * 8)), i8x8)
        b.store(exponents, pointer(b, target, i8x8)).align = 1

    return op(types.void, (types.intp,) * 9, body)


def _worth(b: Any, exponents_at: Any) -> Any:
    """Eight exponents as float32's bits."""
    raw = b.load(pointer(b, exponents_at, i8x8))
    raw.align = 1
    return b.shl(b.zext(raw, i32x8.ir), constant(i32x8, [23] * 8))


def _words(b: Any, numbers: Numbers, scales: Any, rows: tuple[Any, ...]) -> Iterator[Any]:
    """Eight blocks in words."""
    rounds = b.bitcast(b.add(scales, constant(i32x8, [(23 << 23) + (1 << 22)] * 8)), f32x8.ir)  # ROUNDS of them
    for number, row in enumerate(rows):
        same = b.shuffle_vector(rounds, rounds, _all(number))
        yield numbers.words(b, *(b.fadd(x, same) for x in numbers.load(b, row)))


def columns_of(numbers: Numbers) -> Any:
    """An intrinsic (target, target of scales, exponents, eight blocks): words as columns, pairs side by side."""

    def body(b: Any, target: Any, scales_at: Any, exponents_at: Any, *rows: Any) -> None:
        scales = _worth(b, exponents_at)
        b.store(scales, pointer(b, scales_at, i32x8.ir)).align = 1
        words = list(_words(b, numbers, scales, rows))
        for n in (0, 1):
            put_columns(b, target, 8 * n, transposed(b, [_half(b, word, n) for word in words]))

    return op(types.void, (types.intp,) * 11, body)


def dots_of(numbers: Numbers, tokens: int) -> Any:
    """An intrinsic (exponents, target, 32 activations of each token, eight blocks).

    Each block's sums of products, eight integers, go to the target, token by token.
    """
    kind = ir.FunctionType(I32X16, [I32X16] * 3)

    def body(b: Any, exponents_at: Any, target: Any, *addresses: Any) -> None:
        activations, rows = [_load(b, at, I32X16) for at in addresses[:tokens]], addresses[tokens:]
        sums: list[list[Any]] = [[] for _ in activations]
        for word in _words(b, numbers, _worth(b, exponents_at), rows):
            for dots, x in zip(sums, activations, strict=True):
                dots.append(b.asm(kind, "vpdpwssd $3, $2, $0", "=v,0,v,v", [_all(0), word, x], False))
        for n, dots in enumerate(sums):
            at = pointer(b, b.add(target, I64(32 * n)), i32x8.ir)
            b.store(_of_rows(b, dots, b.add), at).align = 32

    return op(types.void, (types.intp,) * (10 + tokens), body)


worth = op(f32x8, (types.intp,), lambda b, at: b.bitcast(_worth(b, at), f32x8.ir))
"""Eight exponents as the numbers that words are times of."""


def _store_words(b: Any, address: Any, x0: Any, x1: Any, x2: Any, x3: Any, factor: Any) -> None:
    same, rounds = b.shuffle_vector(factor, factor, _all(0)), ir.Constant(F32X16, [ROUNDS] * 16)
    halves = [b.shuffle_vector(*pair, ir.Constant(I32X16, list(range(16)))) for pair in ((x0, x1), (x2, x3))]
    b.store(
        _words_of_halves(b, *(_fma(b, half, same, rounds) for half in halves)), pointer(b, address, I32X16)
    ).align = 1


store_words = op(types.void, (types.intp, *(f32x8,) * 5), _store_words)
"""(target, 32 activations, factor): their products as words."""
