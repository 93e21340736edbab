"""Rotary positions: a table of angles once per step and setting, then rotations."""

import math

import numpy as np

from llamina.backends.cpu.kernels.device import kernel
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, f64, i32, i64, set_f32


@kernel(writes=("out",))
def rope_table(thread, threads, count, positions, frequencies, out, pairs, magnitude: float):
    """cos and sin of position × frequency, side by side: out [rows, pairs, 2]."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        position = np.float64(i32(positions + 4 * row))
        for i in range(pairs):
            angle = position * f64(frequencies + 8 * i)
            cell = out + (row * pairs + i) * 8
            set_f32(cell, np.float32(math.cos(angle) * magnitude))
            set_f32(cell + 4, np.float32(math.sin(angle) * magnitude))


@kernel(writes=("out",))
def rotary_table(thread, threads, count, positions, axes, axis_size, frequencies, out, pairs, magnitude: float):
    """The same for M-RoPE: each pair follows one of several positions, [axes, axis_size / 4]."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        for i in range(pairs):
            position = np.float64(i32(positions + i32(axes + 4 * i) * axis_size + 4 * row))
            angle = position * f64(frequencies + 8 * i)
            cell = out + (row * pairs + i) * 8
            set_f32(cell, np.float32(math.cos(angle) * magnitude))
            set_f32(cell + 4, np.float32(math.sin(angle) * magnitude))


@kernel(writes=("out",))
def rope(thread, threads, count, x, x_row, x_head, table, out, out_row, out_head, outer, inner, pairs, stride, gap):
    """Pairs lie at `stride × i` and `stride × i + gap` elements; what is not rotated is copied."""
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        for i in range(pairs):
            cell = table + (row * pairs + i) * 8
            cos, sin = f32(cell), f32(cell + 4)
            at = 4 * stride * i
            a, b = f32(source + at), f32(source + at + 4 * gap)
            set_f32(target + at, a * cos - b * sin)
            set_f32(target + at + 4 * gap, a * sin + b * cos)
        for i in range(2 * pairs, inner):
            set_f32(target + 4 * i, f32(source + 4 * i))


KERNELS = {"rope_table": rope_table, "rotary_table": rotary_table, "rope": rope}
