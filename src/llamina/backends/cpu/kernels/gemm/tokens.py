"""Tokens as tiles want them: groups of four, four bytes (or two words) of each side by side.

of q32, per run of 32     bytes [8, 4, 4] or words [8, 2, 4, 2] (of every four first the first and third)
                          | float32[4] scales | float32[4] scales times sums
                          | int32[4] sums times the format's offset, negative
of q256, per block of 256 bytes [64, 4, 4] or words [128, 4, 2] | int16[8, 4, 2] sums of 16, or int16[4, 4, 2] of 32
                          | float32[4] scales
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.vector.memory import f32, i32, pointer, set_f32, set_i32
from llamina.backends.cpu.kernels.vector.simd import I32, i8x32, i16x16, i32x4, i32x8, op
from llamina.backends.cpu.tiling import SMALL_SIDE, SUPER_SIDE


def _four_into(b: Any, rows: list[Any], target: Any) -> None:
    """Lane i of register t becomes 32-bit word 4 · i + t at the target."""
    pairs = [b.shuffle_vector(rows[t], rows[t + 1], ir.Constant(ir.VectorType(I32, 16), [*range(16)])) for t in (0, 2)]
    for i in range(4):
        lanes = [16 * (t // 2) + 8 * (t % 2) + 2 * i + n for n in (0, 1) for t in range(4)]
        four = b.shuffle_vector(*pairs, ir.Constant(i32x8.ir, lanes))
        b.store(four, pointer(b, b.add(target, ir.IntType(64)(32 * i)), i32x8.ir)).align = 1


def _loaded(b: Any, addresses: tuple[Any, ...], kind: Any) -> list[Any]:
    values = [b.load(pointer(b, address, kind)) for address in addresses]
    for value in values:
        value.align = 1
    return values


def _bytes_of_four(b: Any, *args: Any) -> None:
    """32 bytes of each of four tokens, by fours."""
    *addresses, target = args
    _four_into(b, [b.bitcast(v, i32x8.ir) for v in _loaded(b, tuple(addresses), i8x32.ir)], target)


def _words_of_four(b: Any, order: list[int], *args: Any) -> None:
    """The same 32 bytes made words, by twos; of every four in this order."""
    *addresses, target = args
    for half in (0, 16):
        index = ir.Constant(ir.VectorType(I32, 16), [half + i // 4 * 4 + order[i % 4] for i in range(16)])
        wide = [
            b.bitcast(b.sext(b.shuffle_vector(v, v, index), i16x16.ir), i32x8.ir)
            for v in _loaded(b, tuple(addresses), i8x32.ir)
        ]
        _four_into(b, wide, b.add(target, ir.IntType(64)(8 * half)))


def _sums_of_four(b: Any, *args: Any) -> None:
    """Sixteen sums of 16 of each of four tokens made eight sums of 32, by twos."""
    *addresses, target = args
    rows = []
    for value in _loaded(b, tuple(addresses), i16x16.ir):
        even, odd = (b.shuffle_vector(value, value, ir.Constant(i32x8.ir, list(range(n, 16, 2)))) for n in (0, 1))
        rows.append(b.bitcast(b.add(even, odd), i32x4.ir))
    pairs = [b.shuffle_vector(rows[t], rows[t + 1], ir.Constant(i32x8.ir, list(range(8)))) for t in (0, 2)]
    for i in (0, 2):
        lanes = [8 * (t // 2) + 4 * (t % 2) + i + n for n in (0, 1) for t in range(4)]
        eight = b.shuffle_vector(*pairs, ir.Constant(i32x8.ir, lanes))
        b.store(eight, pointer(b, b.add(target, ir.IntType(64)(16 * i)), i32x8.ir)).align = 1


bytes_of_four, sums_of_four = (op(types.void, (types.intp,) * 5, body) for body in (_bytes_of_four, _sums_of_four))
words_of_four, crossed_words_of_four = (
    op(types.void, (types.intp,) * 5, lambda b, *args, order=order: _words_of_four(b, order, *args))
    for order in ([0, 1, 2, 3], [0, 2, 1, 3])
)


def gather_32(words: bool, offset: int, halves: bool = False) -> Any:
    """Four q32 vectors → a group. With `halves` sums of 16 are multiplied by the offset, both behind the scales."""
    elements = crossed_words_of_four if words else bytes_of_four
    cells = 256 if words else 128

    @device
    def numbers(x, k, b, cell):
        scale, sums = f32(x + k + 4 * b), x + k + k // 8 + 8 * b
        total = i32(sums) + i32(sums + 4)
        set_f32(cell, scale)
        if halves:
            set_i32(cell + 16, -offset * i32(sums))
            set_i32(cell + 32, -offset * i32(sums + 4))
        else:
            set_f32(cell + 16, scale * np.float32(total))
            set_i32(cell + 32, -offset * total)

    @routine
    def gather(x0, x1, x2, x3, k, group):
        for b in range(k // 32):
            elements(x0 + 32 * b, x1 + 32 * b, x2 + 32 * b, x3 + 32 * b, group)
            numbers(x0, k, b, group + cells)
            numbers(x1, k, b, group + cells + 4)
            numbers(x2, k, b, group + cells + 8)
            numbers(x3, k, b, group + cells + 12)
            group += cells + SMALL_SIDE

    return gather


@routine
def gather_words(x0, x1, x2, x3, k, group):
    """Four i16 vectors → a group."""
    for b in range(k // 32):
        for i in (64 * b, 64 * b + 32):
            bytes_of_four(x0 + i, x1 + i, x2 + i, x3 + i, group)
            group += 128
        at = 2 * k + 4 * b
        set_f32(group, f32(x0 + at))
        set_f32(group + 4, f32(x1 + at))
        set_f32(group + 8, f32(x2 + at))
        set_f32(group + 12, f32(x3 + at))
        group += SMALL_SIDE


def gather_super(words: bool, sums_of_32: bool) -> Any:
    """Four q256 vectors → a group."""
    elements = words_of_four if words else bytes_of_four
    sums = sums_of_four if sums_of_32 else bytes_of_four
    run = 256 if words else 128

    @routine
    def gather(x0, x1, x2, x3, k, group):
        for b in range(k // 256):
            for i in range(256 * b, 256 * b + 256, 32):
                elements(x0 + i, x1 + i, x2 + i, x3 + i, group)
                group += run
            at = k + k // 64 + 32 * b
            sums(x0 + at, x1 + at, x2 + at, x3 + at, group)
            set_f32(group + 128, f32(x0 + k + 4 * b))
            set_f32(group + 132, f32(x1 + k + 4 * b))
            set_f32(group + 136, f32(x2 + k + 4 * b))
            set_f32(group + 140, f32(x3 + k + 4 * b))
            group += SUPER_SIDE

    return gather
