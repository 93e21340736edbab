"""Norms over the inner elements of each row and head.

Sums are taken in double precision by 32 running sums, element i going to sum i mod 32; these are added up by a tree.
"""

import math
from typing import Any

import numpy as np
from numba.core import types

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.pointwise.rows import REGISTERS
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i64, set_f32
from llamina.backends.cpu.kernels.vector.simd import (
    first_f64,
    hsum_f64,
    load_f32,
    load_f32_part,
    splat_f64,
    splat_of,
    to_f64,
    zero_f64,
)

splat = splat_of(wide, types.float32)


def summing(term: Any) -> Any:
    """(x, n, centre) → Σ term(element - centre) in double precision."""

    @device
    def whole(x, c):
        return term(to_f64(load_f32(x)) - c)

    @device
    def part(x, c, n):
        return first_f64(term(to_f64(load_f32_part(x, n)) - c), n)

    @device
    def run(x, n, centre):
        s0 = s1 = s2 = s3 = zero_f64()
        c, end = splat_f64(centre), x + 4 * (n & ~31)
        for at in range(x, end, 128):
            s0, s1 = s0 + whole(at, c), s1 + whole(at + 32, c)
            s2, s3 = s2 + whole(at + 64, c), s3 + whole(at + 96, c)
        left = n & 31
        if left:
            s0, s1 = s0 + part(end, c, left), s1 + part(end + 32, c, left - 8)
            s2, s3 = s2 + part(end + 64, c, left - 16), s3 + part(end + 96, c, left - 24)
        return hsum_f64((s0 + s1) + (s2 + s3))

    return run


sum_of, squares_of = summing(device(lambda x: x)), summing(device(lambda x: x * x))


def affine_of(load: Any, store: Any) -> Any:
    """(x - centre) × factor × w + b of a register; w and b may be 0."""

    @device
    def run(source, target, w, b, c, f, n):
        y = (load(source, n) - c) * f
        if w:
            y = y * load(w, n)
        if b:
            y = y + load(b, n)
        store(target, y, n)

    return run


affine_whole, affine_part = (affine_of(*access) for access in REGISTERS)


@device
def affine(source, target, n, centre, factor, w, b):
    c, f, whole = splat(np.float32(centre)), splat(np.float32(factor)), n & -WIDE
    for i in range(0, 4 * whole, 4 * WIDE):
        affine_whole(source + i, target + i, w + i if w else 0, b + i if b else 0, c, f, WIDE)
    if whole < n:
        i = 4 * whole
        affine_part(source + i, target + i, w + i if w else 0, b + i if b else 0, c, f, n - whole)


@kernel(writes=("out",))
def rms_norm(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, w, b, w_head, eps: float):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        factor = 1.0 / math.sqrt(squares_of(source, inner, 0.0) / inner + eps)
        affine(source, target, inner, 0.0, factor, w + head * w_head if w else 0, b + head * w_head if b else 0)


@kernel(writes=("out",))
def layer_norm(
    thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, w, b, w_head, eps: float
):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        mean = sum_of(source, inner, 0.0) / inner
        factor = 1.0 / math.sqrt(squares_of(source, inner, mean) / inner + eps)
        affine(source, target, inner, mean, factor, w + head * w_head if w else 0, b + head * w_head if b else 0)


@kernel(writes=("out",))
def softmax(thread, threads, count, x, x_row, x_head, out, out_row, out_head, outer, inner, constant: float):
    end = first(i64(count) * outer, thread + 1, threads)
    for item in range(first(i64(count) * outer, thread, threads), end):
        row, head = item // outer, item % outer
        source, target = x + row * x_row + head * x_head, out + row * out_row + head * out_head
        top = f32(source)
        for i in range(1, inner):
            top = max(top, f32(source + 4 * i))
        total = 0.0
        for i in range(inner):
            total += math.exp(np.float64(f32(source + 4 * i) - top))
        for i in range(inner):
            set_f32(target + 4 * i, np.float32(math.exp(np.float64(f32(source + 4 * i) - top)) / total))


KERNELS = {"rms_norm": rms_norm, "layer_norm": layer_norm, "softmax": softmax}
