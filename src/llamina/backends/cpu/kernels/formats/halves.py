"""F16 and BF16 weights as block floating point: blocks of 32 words (int16), times a power of two for each block.

Words are as large as their products' sums allow, which are of 32 bits. By Cauchy and Schwarz no sum is larger than the
product of the lengths (norms) of the two blocks: that of weights is scaled to less than 2**16, that of activations
(`quantize.i16`) to less than 2**15. F16's 11 bits are whole in words of 1024 and more.

A number is rounded by adding what makes float32's last bit worth one: the last 16 bits are the word then.

What words are worth is found once, when a model is loaded, and kept beside the weights as float32's exponents:

    exponents   uint8 [rows / 8, blocks of a row, 8 rows]
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import ZEN_4
from llamina.backends.cpu.kernels.formats.blocks import Block32
from llamina.backends.cpu.kernels.vector.memory import pointer
from llamina.backends.cpu.kernels.vector.simd import F32, I8, I16, I32, I64, constant, f32x8, i32x8, intrinsic_call, op
from llamina.backends.cpu.kernels.vector.transpose import put_columns, transposed

i8x8 = ir.VectorType(I8, 8)
F32X16, I32X16 = ir.VectorType(F32, 16), ir.VectorType(I32, 16)
LENGTH = 16  # of a block of weights: as a power of two, at the most
MOST = 32767  # a word, and the length of a block of activations
SLACK = 1.001  # by which squared lengths are taken for more: sums are rounded, and so are words
LEAST = 27  # exponent of float32, here and below: of squared lengths, below which all are alike
HUGE, INFINITE = 232, 255  # of 2**105, and of infinity
ROUNDS = 1.5 * 2**23  # added to a number, its whole part is in float32's last bits
FORM = Block32(None, 64, MOST, words=True)


Numbers = Callable[[Any, Any, int], Any]
"""How a format's elements are read: n of them from an address, as float32."""


def _load(b: Any, address: Any, kind: ir.Type) -> Any:
    value = b.load(pointer(b, address, kind))
    value.align = 1
    return value


def _ints(n: int) -> ir.VectorType:
    return ir.VectorType(I32, n)


def _all(value: int, n: int = 16) -> ir.Constant:
    return ir.Constant(_ints(n), [value] * n)


def _f16(b: Any, address: Any, n: int) -> Any:
    return b.fpext(_load(b, address, ir.VectorType(ir.HalfType(), n)), ir.VectorType(F32, n))


def _bf16(b: Any, address: Any, n: int) -> Any:
    raw = b.zext(_load(b, address, ir.VectorType(I16, n)), _ints(n))
    return b.bitcast(b.shl(raw, _all(16, n)), ir.VectorType(F32, n))


NUMBERS: dict[str, Numbers] = {"F16": _f16, "BF16": _bf16}


def _block(b: Any, numbers: Numbers, address: Any, n: int) -> list[Any]:
    """A block in registers of n elements."""
    return [numbers(b, b.add(address, I64(2 * start)), n) for start in range(0, 32, n)]


def _words(b: Any, x: Any, y: Any) -> Any:
    """The last 16 bits of the elements of x, then those of y."""
    n = x.type.count
    lower = ir.Constant(ir.VectorType(I16, 2 * n), list(range(0, 4 * n, 2)))
    kind = ir.FunctionType(_ints(n), [x.type, lower.type, y.type])
    return b.asm(kind, "vpermt2w $3, $2, $0", "=v,0,v,v", [x, lower, y], False)


def _fma(b: Any, *args: Any) -> Any:
    kind = args[0].type
    return intrinsic_call(b, f"llvm.fma.v{kind.count}f32", kind, list(args))


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
        scales = _scales(b, [_block(b, numbers, row, 16) for row in rows])
        exponents = b.trunc(b.lshr(scales, constant(i32x8, [23] * 8)), i8x8)
        b.store(exponents, pointer(b, target, i8x8)).align = 1

    return op(types.void, (types.intp,) * 9, body)


def _worth(b: Any, exponents_at: Any) -> Any:
    """Eight exponents as float32's bits."""
    raw = b.load(pointer(b, exponents_at, i8x8))
    raw.align = 1
    return b.shl(b.zext(raw, i32x8.ir), constant(i32x8, [23] * 8))


def _scaled(b: Any, numbers: Numbers, exponent_at: Any, row: Any, n: int) -> list[Any]:
    """A block as float32, rounded so that the last 16 bits are words: in registers of n elements.

    Factors come from a table, one for each exponent: loads make them as wide as registers for nothing.
    """
    kind, exponent = ir.VectorType(F32, n), b.zext(b.load(pointer(b, exponent_at, I8)), I64)
    factor = b.load(b.gep(_factors(b), [I64(0), exponent]))
    factor = b.insert_element(ir.Constant(kind, ir.Undefined), factor, I32(0))
    factor = b.shuffle_vector(factor, factor, _all(0, n))
    return [_fma(b, x, factor, ir.Constant(kind, [ROUNDS] * n)) for x in _block(b, numbers, row, n)]


def _factors(b: Any) -> ir.GlobalVariable:
    """What numbers are multiplied with to be words, by the exponents of what these are worth: 0 for an infinite one."""
    name, kind = "llamina.factors", ir.ArrayType(F32, INFINITE + 1)
    if name not in b.module.globals:
        table = ir.GlobalVariable(b.module, kind, name)
        table.linkage, table.global_constant = "private", True
        table.initializer = ir.Constant(kind, [2.0 ** (127 - e) if e < 254 else 0.0 for e in range(INFINITE + 1)])
    return b.module.globals[name]


def columns_of(numbers: Numbers) -> Any:
    """An intrinsic (target, target of scales, exponents, eight blocks): words as columns, pairs side by side."""

    def body(b: Any, target: Any, scales_at: Any, exponents_at: Any, *rows: Any) -> None:
        scales = _worth(b, exponents_at)
        b.store(scales, pointer(b, scales_at, i32x8.ir)).align = 1
        words = [_words(b, *_scaled(b, numbers, b.add(exponents_at, I64(i)), row, 16)) for i, row in enumerate(rows)]
        for n in (0, 1):
            put_columns(b, target, 8 * n, transposed(b, [_half(b, word, n) for word in words]))

    return op(types.void, (types.intp,) * 11, body)


def dots_of(numbers: Numbers, tokens: int) -> Any:
    """An intrinsic (exponents, target, 32 activations of each token, eight blocks).

    Each block's sums of products, eight integers, go to the target, token by token. Rows r and r + 4 share registers.
    """
    n = 8 if ZEN_4 else 16  # elements of a register as float32, words of a row in a register of two rows
    kind = ir.FunctionType(_ints(n), [_ints(n)] * 3)
    twice = ir.Constant(_ints(n), [*range(n // 2)] * 2)

    def body(b: Any, exponents_at: Any, target: Any, *addresses: Any) -> None:
        places, rows = addresses[:tokens], addresses[tokens:]
        parts = []
        for at in places:
            halves = [_load(b, b.add(at, I64(start)), _ints(n // 2)) for start in range(0, 64, 2 * n)]
            parts.append([b.shuffle_vector(half, half, twice) for half in halves])
        totals: list[list[Any]] = [[] for _ in places]
        for r in range(4):
            lower, upper = (_scaled(b, numbers, b.add(exponents_at, I64(i)), rows[i], n) for i in (r, r + 4))
            words = [_words(b, x, y) for x, y in zip(lower, upper, strict=True)]
            for found, part in zip(totals, parts, strict=True):
                total = _all(0, n)
                for word, x in zip(words, part, strict=True):
                    total = b.asm(kind, "vpdpwssd $3, $2, $0", "=v,0,v,v", [total, word, x], False)
                found.append(total)
        for i, found in enumerate(totals):
            b.store(_sums(b, found), pointer(b, b.add(target, I64(32 * i)), i32x8.ir)).align = 32

    return op(types.void, (types.intp,) * (10 + tokens), body)


def _sums(b: Any, rows: list[Any]) -> Any:
    """Four registers, in whose halves rows r and r + 4 are → the sums of eight rows."""
    if rows[0].type.count == 16:
        lanes = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])
        rows = [b.add(*(b.shuffle_vector(x, x, ir.Constant(i32x8.ir, lane)) for lane in lanes)) for x in rows]
    even, odd = ([start + i for start in (0, 8, 4, 12) for i in pair] for pair in ((0, 2), (1, 3)))
    for _ in range(2):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [b.add(*(b.shuffle_vector(x, y, ir.Constant(i32x8.ir, at)) for at in (even, odd))) for x, y in pairs]
    return rows[0]


worth = op(f32x8, (types.intp,), lambda b, at: b.bitcast(_worth(b, at), f32x8.ir))
"""Eight exponents as the numbers that words are times of."""


def _store_words(b: Any, address: Any, x0: Any, x1: Any, x2: Any, x3: Any, factor: Any) -> None:
    same, rounds = b.shuffle_vector(factor, factor, _all(0)), ir.Constant(F32X16, [ROUNDS] * 16)
    halves = [b.shuffle_vector(*pair, ir.Constant(I32X16, list(range(16)))) for pair in ((x0, x1), (x2, x3))]
    words = _words(b, *(_fma(b, half, same, rounds) for half in halves))
    b.store(words, pointer(b, address, words.type)).align = 1


store_words = op(types.void, (types.intp, *(f32x8,) * 5), _store_words)
"""(target, 32 activations, factor): their products as words."""
