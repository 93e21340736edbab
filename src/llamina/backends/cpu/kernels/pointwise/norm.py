"""Norms over the inner elements of each row and head; sums are taken in double precision, in a fixed order."""

import math

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i64, set_f32
from llamina.backends.cpu.kernels.vector.simd import load_f32, load_f32_part, splat_f32, store_f32, store_f32_part


@device
def sum_of(x, n):
    total = 0.0
    for i in range(n):
        total += np.float64(f32(x + 4 * i))
    return total


@device
def squares_of(x, n, centre):
    """Four running sums, so that the additions overlap."""
    a = b = c = d = 0.0
    whole = n & ~3
    for i in range(0, whole, 4):
        p = np.float64(f32(x + 4 * i)) - centre
        q = np.float64(f32(x + 4 * i + 4)) - centre
        r = np.float64(f32(x + 4 * i + 8)) - centre
        s = np.float64(f32(x + 4 * i + 12)) - centre
        a += p * p
        b += q * q
        c += r * r
        d += s * s
    for i in range(whole, n):
        p = np.float64(f32(x + 4 * i)) - centre
        a += p * p
    return (a + b) + (c + d)


@device
def affine(source, target, n, centre, factor, w, b):
    """(x - centre) × factor × w + b, w and b being optional (0)."""
    c, f = splat_f32(np.float32(centre)), splat_f32(np.float32(factor))
    whole = n & ~7
    for i in range(0, whole, 8):
        y = (load_f32(source + 4 * i) - c) * f
        if w:
            y = y * load_f32(w + 4 * i)
        if b:
            y = y + load_f32(b + 4 * i)
        store_f32(target + 4 * i, y)
    if whole < n:
        left = n - whole
        y = (load_f32_part(source + 4 * whole, left) - c) * f
        if w:
            y = y * load_f32_part(w + 4 * whole, left)
        if b:
            y = y + load_f32_part(b + 4 * whole, left)
        store_f32_part(target + 4 * whole, y, left)


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
        mean = sum_of(source, inner) / inner
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
