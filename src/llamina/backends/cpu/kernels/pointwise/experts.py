"""Routing to experts, and mixing what they return."""

import math
from typing import Any

import numpy as np
from numba.core import types

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.pointwise.rows import REGISTERS, add_row
from llamina.backends.cpu.kernels.vector.loads import WIDE, wide
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32, set_i32
from llamina.backends.cpu.kernels.vector.simd import fill_of, splat_of

zero, splat = fill_of(wide, 0.0), splat_of(wide, types.float32)


@device
def softmax(x, n):
    """In place, in double precision."""
    top = f32(x)
    for i in range(1, n):
        top = max(top, f32(x + 4 * i))
    total = 0.0
    for i in range(n):
        total += math.exp(np.float64(f32(x + 4 * i) - top))
    for i in range(n):
        set_f32(x + 4 * i, np.float32(math.exp(np.float64(f32(x + 4 * i) - top)) / total))


@device
def sigmoid(x):
    return np.float32(1.0 / (1.0 + math.exp(-np.float64(x))))


@device
def drop_groups(ranked, experts, groups, groups_used):
    """Groups are compared by the sum of their two best; all but the best ones leave the running."""
    size = experts // groups
    for g in range(groups):
        mine = _two_best(ranked + 4 * g * size, size)
        better = 0
        for other in range(groups):
            theirs = _two_best(ranked + 4 * other * size, size)
            if theirs > mine or (theirs == mine and other < g):
                better += 1
        if better >= groups_used:
            for i in range(size):
                set_f32(ranked + 4 * (experts + g * size + i), np.float32(1))  # a mark, applied below


@device
def _two_best(x, n):
    best = second = np.float32(-np.inf)
    for i in range(n):
        value = f32(x + 4 * i)
        if value > best:
            second = best
            best = value
        elif value > second:
            second = value
    return best + second


@kernel(writes=("out_ids", "out_weights", "scratch"))
def route(
    thread, threads, count, x, x_row, bias, out_ids, out_weights, scratch,
    experts, used, scoring, normalize, groups, groups_used, share, factor: float,
):  # fmt: skip
    """scoring 0: softmax of all, 1: sigmoid, 2 and 3: the same of the chosen. Scratch: 3 × experts floats a row."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        scores = scratch + row * 12 * experts
        ranked, dropped = scores + 4 * experts, scores + 8 * experts
        ids, weights = out_ids + row * 4 * used, out_weights + row * 4 * used
        for i in range(experts):
            value = f32(x + row * x_row + 4 * i)
            if scoring == 1:
                value = sigmoid(value)
            set_f32(scores + 4 * i, value)
        if scoring == 0:
            softmax(scores, experts)
        for i in range(experts):
            set_f32(ranked + 4 * i, f32(scores + 4 * i) + (f32(bias + 4 * i) if bias else np.float32(0)))
            set_f32(dropped + 4 * i, np.float32(0))
        if groups > 1:
            drop_groups(ranked, experts, groups, groups_used)
        for k in range(used):
            best = -1
            for i in range(experts):
                open_ = f32(dropped + 4 * i) == np.float32(0)
                if open_ and (best < 0 or f32(ranked + 4 * i) > f32(ranked + 4 * best)):
                    best = i
            set_f32(dropped + 4 * best, np.float32(1))
            set_i32(ids + 4 * k, best // share)
            set_f32(weights + 4 * k, f32(scores + 4 * (best // share)))
        if scoring == 2:
            softmax(weights, used)
        elif scoring == 3:
            for k in range(used):
                set_f32(weights + 4 * k, sigmoid(f32(weights + 4 * k)))
        total = np.float32(1)
        if normalize:
            total = np.float32(0)
            for k in range(used):
                total += f32(weights + 4 * k)
            total = max(total, np.float32(6.103515625e-5))
        for k in range(used):
            set_f32(weights + 4 * k, f32(weights + 4 * k) / total * np.float32(factor))


def mix_of(load: Any, store: Any) -> Any:
    """A register of a weighted sum over the experts used."""

    @device
    def run(x, x_head, by, step, target, used, n):
        total = zero()
        for k in range(used):
            total = total + load(x + k * x_head, n) * splat(f32(by + k * step))
        store(target, total, n)

    return run


mix_whole, mix_part = (mix_of(*access) for access in REGISTERS)


@kernel(writes=("out",))
def mix(thread, threads, count, x, x_row, x_head, weights, weights_row, out, out_row, out_head, used, sums, inner):
    """Weighted sums over the experts used, in their order; the weights are [used, sums]."""
    step, whole = 4 * sums, inner & -WIDE
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        source = x + row * x_row
        for j in range(sums):
            by, target = weights + row * weights_row + 4 * j, out + row * out_row + j * out_head
            for i in range(0, 4 * whole, 4 * WIDE):
                mix_whole(source + i, x_head, by, step, target + i, used, WIDE)
            if whole < inner:
                mix_part(source + 4 * whole, x_head, by, step, target + 4 * whole, used, inner - whole)


@kernel(writes=("out",))
def sinkhorn(thread, threads, count, x, x_row, out, out_row, n, rounds, eps: float):
    """Rows of n × n: softmax, then columns and rows divided by their sums alternately."""
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        target = out + row * out_row
        for i in range(n * n):
            set_f32(target + 4 * i, f32(x + row * x_row + 4 * i))
        for i in range(n):
            softmax(target + 4 * i * n, n)
        for i in range(n * n):
            set_f32(target + 4 * i, f32(target + 4 * i) + np.float32(eps))
        for i in range(rounds):
            for j in range(n):
                if i:
                    divide(target + 4 * j * n, 4, n, eps)
            for j in range(n):
                divide(target + 4 * j, 4 * n, n, eps)


@device
def divide(x, step, n, eps):
    """n numbers by their sum + eps."""
    total = eps
    for i in range(n):
        total += np.float64(f32(x + i * step))
    for i in range(n):
        set_f32(x + i * step, np.float32(np.float64(f32(x + i * step)) / total))


@kernel(writes=("out",))
def expert_bias(thread, threads, count, x, x_row, x_head, ids, ids_row, bias, out, out_row, out_head, outer, inner):
    for row in range(first(i64(count), thread, threads), first(i64(count), thread + 1, threads)):
        for k in range(outer):
            own = bias + i32(ids + row * ids_row + 4 * k) * inner * 4
            add_row(x + row * x_row + k * x_head, own, out + row * out_row + k * out_head, inner)


KERNELS = {"route": route, "mix": mix, "sinkhorn": sinkhorn, "expert_bias": expert_bias}
