"""Rows of weights into tiles: 32 elements at a time, then transposed. Eight rows fill half a tile of sixteen.

beside a run of 32        float32[rows] d | float32[rows] m
beside a block of 256     16 runs' scales (twice each) | pairs of mins or scales | float32[rows] d, dmin
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.formats.blocks import Block32, SuperBlock, gather_min
from llamina.backends.cpu.kernels.formats.halves import Numbers, columns_of
from llamina.backends.cpu.kernels.gemm.dots import biased, in_words
from llamina.backends.cpu.kernels.gemv.blocks import prefetch_lines, rows_after
from llamina.backends.cpu.kernels.vector.memory import pointer, stack_of
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    constant,
    i8x32,
    i16x16,
    op,
    shuffle_of,
    store_f32,
    store_i8x32,
    store_i16x16,
)
from llamina.backends.cpu.kernels.vector.transpose import (
    byte_columns,
    byte_columns_at,
    memory_columns,
    nibble_columns,
    raised_columns,
    raised_columns_at,
    sixteen_columns,
    word_columns,
    word_columns_at,
)
from llamina.backends.cpu.tiling import SUPER_CELL, UNIT

up_128 = op(i8x32, (i8x32,), lambda b, x: b.xor(x, constant(i8x32, [-128] * 32)))


def columns_for(form: Block32) -> Any:
    """(target, run, eight blocks): their elements as columns."""
    at, up, words, values = form.packed_at, biased(form), in_words(form), form.values
    if form.four_bits and not words:
        put = sixteen_columns(tuple(level + 128 for level in form.levels) if up else form.levels)
    elif at and not form.four_bits:
        put = word_columns_at if words else raised_columns_at if up else byte_columns_at
    else:
        at, put = 0, word_columns if words else raised_columns if up else byte_columns

    @device
    def columns(tile, j, p0, p1, p2, p3, p4, p5, p6, p7):
        if at:
            put(tile, p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at)
        else:
            put(
                tile,
                values(p0, j), values(p1, j), values(p2, j), values(p3, j),
                values(p4, j), values(p5, j), values(p6, j), values(p7, j),
            )  # fmt: skip

    return columns


def unpack_32(form: Block32) -> Any:
    """Scales and mins per run of 32: float32[rows] | float32[rows]."""
    nbytes, runs, gather, has_min, columns = form.nbytes, form.runs, form.gather, form.has_min, columns_for(form)
    run_bytes = 16 * UNIT if in_words(form) else 8 * UNIT

    @routine
    def unpack(p0, w_row, last, k, tile, ahead, exponents):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        scales = tile + run_bytes * (k // 32)
        for b in range(k // 32):
            j = b % runs
            columns(tile + run_bytes * b, j, p0, p1, p2, p3, p4, p5, p6, p7)
            store_f32(scales + 2 * UNIT * b, gather(p0, p1, p2, p3, p4, p5, p6, p7))
            if has_min:
                store_f32(scales + 2 * UNIT * b + UNIT, gather_min(p0, p1, p2, p3, p4, p5, p6, p7))
            if j == runs - 1:
                p0, p1, p2, p3 = p0 + nbytes, p1 + nbytes, p2 + nbytes, p3 + nbytes
                p4, p5, p6, p7 = p4 + nbytes, p5 + nbytes, p6 + nbytes, p7 + nbytes

    return unpack


def unpack_words(numbers: Numbers) -> Any:
    """Float weights as words, by their exponents; scales as those of runs of 32."""
    columns = columns_of(numbers)

    @routine
    def unpack(p0, w_row, last, k, tile, ahead, exponents):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        scales = tile + 16 * UNIT * (k // 32)
        for b in range(k // 32):
            columns(tile + 16 * UNIT * b, scales + 2 * UNIT * b, exponents + 8 * b, p0, p1, p2, p3, p4, p5, p6, p7)
            p0, p1, p2, p3, p4, p5, p6, p7 = p0 + 64, p1 + 64, p2 + 64, p3 + 64, p4 + 64, p5 + 64, p6 + 64, p7 + 64

    return unpack


row_elements, row_scales = stack_of(8 * 512), stack_of(8 * 96)
early_twice, late_twice = (shuffle_of(i16x16, i16x16, [n + i // 2 for i in range(16)]) for n in (0, 8))


def _scaled_words(b: Any, v: Any, scales: Any, target: Any) -> None:
    """Two runs of 16 signed bytes times their scales."""
    for half in (0, 16):
        scale = b.load(pointer(b, b.add(scales, I64(half // 8)), ir.IntType(16)))
        undef = ir.Constant(i16x16.ir, ir.Undefined)
        same = b.shuffle_vector(
            b.insert_element(undef, scale, I32(0)), undef, ir.Constant(ir.VectorType(I32, 16), [0] * 16)
        )
        index = ir.Constant(ir.VectorType(I32, 16), list(range(half, half + 16)))
        wide = b.mul(b.sext(b.shuffle_vector(v, v, index), i16x16.ir), same)
        b.store(wide, pointer(b, b.add(target, I64(2 * half)), i16x16.ir)).align = 1


scaled_words = op(types.void, (i8x32, types.intp, types.intp), _scaled_words)


def unpack_super(form: SuperBlock) -> Any:
    """Beside the elements, per block: 16 runs' scales (twice each), 8 pairs' mins or scales, d, dmin."""
    values, scales_of, nbytes, gather = form.values, form.scales, form.nbytes, form.gather
    pairs_of, gather_min, has_min = form.mins or form.scales, form.gather_min or form.gather, form.mins is not None
    up, words, pairs_at = biased(form), in_words(form), form.pairs_at
    quick, put_side = form.side is not None, form.side or memory_columns
    run_bytes = 64 if words else 32

    @device
    def elements(v, j, scales, target):
        if words:
            scaled_words(v, scales + 4 * j, target + 64 * j)
        else:
            store_i8x32(target + 32 * j, up_128(v) if up else v)

    @device
    def row(p, target, cell):
        if not quick:
            store_i16x16(cell, scales_of(p))
        if not pairs_at:
            v0, v1, v2, v3 = values(p, 0), values(p, 1), values(p, 2), values(p, 3)  # before anything is stored
            v4, v5, v6, v7 = values(p, 4), values(p, 5), values(p, 6), values(p, 7)
            elements(v0, 0, cell, target)
            elements(v1, 1, cell, target)
            elements(v2, 2, cell, target)
            elements(v3, 3, cell, target)
            elements(v4, 4, cell, target)
            elements(v5, 5, cell, target)
            elements(v6, 6, cell, target)
            elements(v7, 7, cell, target)
        if not quick:
            s = scales_of(p)
            store_i16x16(cell, early_twice(s))
            store_i16x16(cell + 32, late_twice(s))
            store_i16x16(cell + 64, pairs_of(p))

    @routine
    def unpack(p, w_row, last, k, tile, ahead, exponents):
        rows, cells, side = row_elements(), row_scales(), tile + run_bytes // 4 * UNIT * (k // 32)
        for _ in range(k // 256):
            for r in range(0 if pairs_at and quick else 8):
                if r % 2 == 0:
                    prefetch_lines(p + min(r, last) * w_row + ahead, nbytes, True)
                row(p + min(r, last) * w_row, rows + 8 * run_bytes * r, cells + 96 * r)
            p1, p2, p3, p4, p5, p6, p7 = rows_after(p, w_row, last)
            if pairs_at:
                for i in range(pairs_at, pairs_at + 128, 32):
                    if quick:
                        prefetch_lines(p + min((i - pairs_at) // 16, last) * w_row + ahead, nbytes, True)
                    nibble_columns(tile, p + i, p1 + i, p2 + i, p3 + i, p4 + i, p5 + i, p6 + i, p7 + i)
                    tile += 16 * UNIT
            else:
                for j in range(run_bytes // 4):
                    memory_columns(tile, rows + 32 * j, 8 * run_bytes)
                    tile += 8 * UNIT
            if quick:
                put_side(side, p, p1, p2, p3, p4, p5, p6, p7)
            else:
                for j in range(3):
                    memory_columns(side + 8 * UNIT * j, cells + 32 * j, 96)
                store_f32(side + 24 * UNIT, gather(p, p1, p2, p3, p4, p5, p6, p7))
                if has_min:
                    store_f32(side + 25 * UNIT, gather_min(p, p1, p2, p3, p4, p5, p6, p7))
            p, side = p + nbytes, side + SUPER_CELL

    return unpack
