"""Rotary positions: a table of angles once per step and setting, then rotations.

A row of the table holds the cosines of all pairs, then their sines.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.pointwise.rows import REGISTERS, copy_row
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f64, i32, i64, set_f32
from llamina.backends.cpu.kernels.vector.simd import I32, op


def merged(lanes: list[int]) -> Any:
    """(x, y) → lanes of both, y's being numbered on."""
    index = ir.Constant(ir.VectorType(I32, WIDE), lanes)
    return op(wide, (wide, wide), lambda b, x, y: b.shuffle_vector(x, y, index))


PAIRS = [lane for i in range(WIDE) for lane in (i, WIDE + i)]
evens, odds = (merged([*range(start, 2 * WIDE, 2)]) for start in (0, 1))
lower_pairs, upper_pairs = merged(PAIRS[:WIDE]), merged(PAIRS[WIDE:])


@device
def put_angle(row, i, pairs, angle, magnitude):
    set_f32(row + 4 * i, np.float32(math.cos(angle) * magnitude))
    set_f32(row + 4 * (pairs + i), np.float32(math.sin(angle) * magnitude))


@kernel(writes=("out",))
def rope_table(thread, threads, count, positions, frequencies, out, pairs, magnitude: float):
    """Of position × frequency: out [rows, 2, pairs]."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        position = np.float64(i32(positions + 4 * row))
        for i in range(pairs):
            put_angle(out + row * pairs * 8, i, pairs, position * f64(frequencies + 8 * i), magnitude)


@kernel(writes=("out",))
def rotary_table(thread, threads, count, positions, axes, axis_size, frequencies, out, pairs, magnitude: float):
    """The same for M-RoPE: each pair follows one of several positions, [axes, axis_size / 4]."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        for i in range(pairs):
            position = np.float64(i32(positions + i32(axes + 4 * i) * axis_size + 4 * row))
            put_angle(out + row * pairs * 8, i, pairs, position * f64(frequencies + 8 * i), magnitude)


def turn_of(load: Any, store: Any) -> Any:
    """Rotates a register of pairs: first numbers side by side and, `gap` bytes behind them, second ones."""

    @device
    def run(source, target, cosines, sines, gap, n):
        cos, sin, a, b = load(cosines, n), load(sines, n), load(source, n), load(source + gap, n)
        store(target, a * cos - b * sin, n)
        store(target + gap, a * sin + b * cos, n)

    return run


def turn_neighbours_of(load: Any, store: Any) -> Any:
    """The same, of pairs whose numbers are neighbours."""

    @device
    def run(source, target, cosines, sines, gap, n):
        x, y = load(source, 2 * n), load(source + 4 * WIDE, 2 * n - WIDE)
        cos, sin, a, b = load(cosines, n), load(sines, n), evens(x, y), odds(x, y)
        p, q = a * cos - b * sin, a * sin + b * cos
        store(target, lower_pairs(p, q), 2 * n)
        store(target + 4 * WIDE, upper_pairs(p, q), 2 * n - WIDE)

    return run


def row_of(turn: Any, stride: int) -> Any:
    """A row of pairs."""
    turn_whole, turn_part = (turn(*access) for access in REGISTERS)

    @device
    def run(source, target, cosines, pairs, gap):
        sines, whole = cosines + 4 * pairs, pairs & -WIDE
        for i in range(0, 4 * whole, 4 * WIDE):
            turn_whole(source + stride * i, target + stride * i, cosines + i, sines + i, gap, WIDE)
        if whole < pairs:
            i = 4 * whole
            turn_part(source + stride * i, target + stride * i, cosines + i, sines + i, gap, pairs - whole)

    return run


turn_row, turn_neighbours_row = row_of(turn_of, 1), row_of(turn_neighbours_of, 2)


@kernel(writes=("out",))
def rope(thread, threads, count, x, x_row, x_head, table, out, out_row, out_head, outer, inner, pairs, stride, gap):
    """Pairs lie at i and i + `gap` (`stride` 1), or at 2i and 2i + 1 (`stride` 2); what is not rotated is copied."""
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        if stride == 1:
            turn_row(source, target, table + row * pairs * 8, pairs, 4 * gap)
        else:
            turn_neighbours_row(source, target, table + row * pairs * 8, pairs, 4 * gap)
        copy_row(source + 8 * pairs, target + 8 * pairs, inner - 2 * pairs)


KERNELS = {"rope_table": rope_table, "rotary_table": rotary_table, "rope": rope}
