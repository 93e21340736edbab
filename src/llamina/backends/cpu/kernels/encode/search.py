"""The searches for scales, eight sub-blocks at a time: each lane does ggml's arithmetic in ggml's order.

A search returns registers: the scale of each sub-block, and what its integers are computed from. `x` and `w` are the
addresses of n registers, numbers and their weights.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.lanes import (
    TINY,
    bounded,
    choose,
    differs,
    equal,
    greater,
    less,
    nearest,
    some,
)
from llamina.backends.cpu.kernels.vector.memory import stack_of
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    cvt_f32,
    f32x8,
    fill_of,
    i32x8,
    load_f32,
    max_f32,
    min_f32,
    round_f32,
    splat_f32,
    store_f32,
    zero_f32,
)

ONE, MINUS_ONE, BYTE = fill_of(f32x8, 1.0), fill_of(f32x8, -1.0), fill_of(i32x8, 255)


def ranged(n: int, top: int, low: float, step: float, steps: int, absolute: bool = False) -> Any:
    """A search for scale and minimum: x ≈ scale * q + minimum, q in 0..top, minimum ≤ 0 (make_qkx2_quants).

    Tried are the integers of ranges stretched by low, low + step, …; scale and minimum fit them by weighted least
    squares. Errors are squares, or absolute values. Returns scale, minimum, and the (inverse scale, minimum) that the
    integers of the best try were rounded with: see `ranged_integers`.
    """
    TOP, integers = fill_of(f32x8, float(top)), stack_of(32 * n)
    whole, first, further = np.float32(top), np.float32(low), np.float32(step)

    @device
    def error_of(difference):
        return abs_f32(difference) if absolute else difference * difference

    @device
    def search(x, w):
        zero, levels = zero_f32(), integers()
        lowest = highest = load_f32(x)
        sum_w = load_f32(w)
        sum_x = sum_w * lowest
        for i in range(1, n):
            v, weight = load_f32(x + 32 * i), load_f32(w + 32 * i)
            lowest, highest = min_f32(v, lowest), max_f32(v, highest)
            sum_w = sum_w + weight
            sum_x = sum_x + weight * v
        lowest = choose(greater(lowest, zero), zero, lowest)
        flat = equal(highest, lowest)
        inverse = TOP() / (highest - lowest)
        scale = ONE() / inverse
        best = zero
        for i in range(n):
            v = load_f32(x + 32 * i)
            q = max_f32(zero, min_f32(TOP(), round_f32(inverse * (v - lowest))))
            best = best + load_f32(w + 32 * i) * error_of(scale * q + lowest - v)
        best = choose(flat, MINUS_ONE(), best)  # no error is smaller
        scale = choose(flat, zero, scale)
        best_inverse, best_lowest = choose(flat, zero, inverse), lowest
        for number in range(steps + 1):
            inverse = splat_f32(first + further * np.float32(number) + whole) / (highest - lowest)
            sum_l, sum_l2, sum_xl = zero, zero, zero
            for i in range(n):
                v = load_f32(x + 32 * i)
                q = max_f32(zero, min_f32(TOP(), round_f32(inverse * (v - lowest))))
                store_f32(levels + 32 * i, q)
                weighted = load_f32(w + 32 * i) * q
                sum_l = sum_l + weighted
                sum_l2 = sum_l2 + weighted * q
                sum_xl = sum_xl + weighted * v
            determinant = sum_w * sum_l2 - sum_l * sum_l
            new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
            new_lowest = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
            above = greater(new_lowest, zero)
            new_scale = choose(above, sum_xl / sum_l2, new_scale)
            new_lowest = choose(above, zero, new_lowest)
            error = zero
            for i in range(n):
                difference = new_scale * load_f32(levels + 32 * i) + new_lowest - load_f32(x + 32 * i)
                error = error + load_f32(w + 32 * i) * error_of(difference)
            better = greater(determinant, zero) & less(error, best)
            best_inverse, best_lowest = choose(better, inverse, best_inverse), choose(better, lowest, best_lowest)
            best, scale = choose(better, error, best), choose(better, new_scale, scale)
            lowest = choose(better, new_lowest, lowest)
        return scale, lowest, best_inverse, best_lowest

    return search


@device
def ranged_integer(v, inverse, lowest, top):
    """What `ranged` rounded a register of numbers to."""
    return max_f32(zero_f32(), min_f32(top, round_f32(inverse * (v - lowest))))


def centred(n: int, top: int) -> Any:
    """A search for a scale: x ≈ scale * q, q in -top..top-1 (make_qx_quants).

    Returns the scale, and the inverse scale that the integers were rounded with; both are 0 for lanes of zeros.
    """
    TOP, BOTTOM = fill_of(f32x8, float(top - 1)), fill_of(f32x8, float(-top))
    whole = np.float32(top)

    @device
    def sums(x, w, inverse):
        sum_lx, sum_l2 = zero_f32(), zero_f32()
        for i in range(n):
            v, weight = load_f32(x + 32 * i), load_f32(w + 32 * i)
            q = max_f32(BOTTOM(), min_f32(TOP(), round_f32(inverse * v)))
            sum_lx = sum_lx + weight * v * q
            sum_l2 = sum_l2 + weight * q * q
        return sum_lx, sum_l2

    @device
    def search(x, w):
        zero = zero_f32()
        top_size, top_value = zero, zero
        for i in range(n):
            v = load_f32(x + 32 * i)
            larger = greater(abs_f32(v), top_size)
            top_size, top_value = choose(larger, abs_f32(v), top_size), choose(larger, v, top_value)
        flat = less(top_size, TINY())
        best_inverse = BOTTOM() / top_value
        sum_lx, sum_l2 = sums(x, w, best_inverse)
        scale = choose(differs(sum_l2, zero), sum_lx / sum_l2, zero)
        best = scale * sum_lx
        for number in range(-9, 10):
            if number != 0:
                inverse = splat_f32(-(whole + np.float32(0.1) * np.float32(number))) / top_value
                sum_lx, sum_l2 = sums(x, w, inverse)
                better = greater(sum_l2, zero) & greater(sum_lx * sum_lx, best * sum_l2)
                scale = choose(better, sum_lx / sum_l2, scale)
                best = choose(better, scale * sum_lx, best)
                best_inverse = choose(better, inverse, best_inverse)
        return choose(flat, zero, scale), choose(flat, zero, best_inverse)

    return search


def descended(n: int, top: int) -> Any:
    """A search for a scale that changes one integer at a time (make_q3_quants). `q` receives the integers.

    Returns the scale, 0 for lanes of zeros, where all integers are -top; otherwise they are -top..top-1.
    """
    TOP, BOTTOM = fill_of(i32x8, top - 1), fill_of(i32x8, -top)
    START = fill_of(f32x8, float(-top))

    @device
    def search(x, q):
        zero = zero_f32()
        top_size, top_value = zero, zero
        for i in range(n):
            v = load_f32(x + 32 * i)
            larger = greater(abs_f32(v), top_size)
            top_size, top_value = choose(larger, abs_f32(v), top_size), choose(larger, v, top_value)
        flat = less(top_size, TINY())
        inverse = START() / top_value
        sum_lx, sum_l2 = zero, zero
        for i in range(n):
            v = load_f32(x + 32 * i)
            level = choose(flat, zero, cvt_f32(bounded(nearest(inverse * v), BOTTOM(), TOP())))
            store_f32(q + 32 * i, level)
            sum_lx = sum_lx + v * v * v * level
            sum_l2 = sum_l2 + v * v * level * level
        for _ in range(5):
            changed = False
            for i in range(n):
                v, old = load_f32(x + 32 * i), load_f32(q + 32 * i)
                weight = v * v
                lx, l2 = sum_lx - weight * v * old, sum_l2 - weight * old * old
                new = cvt_f32(bounded(nearest(v * l2 / lx), BOTTOM(), TOP()))
                apt = greater(lx, zero) & differs(new, old)
                lx, l2 = lx + weight * v * new, l2 + weight * new * new
                better = apt & greater(l2, zero) & greater(lx * lx * sum_l2, sum_lx * sum_lx * l2)
                store_f32(q + 32 * i, choose(better, new, old))
                sum_lx, sum_l2 = choose(better, lx, sum_lx), choose(better, l2, sum_l2)
                changed = changed | some(better)
            if not changed:
                break
        for i in range(n):
            store_f32(q + 32 * i, choose(flat, START(), load_f32(q + 32 * i)))
        return choose(flat, zero, choose(greater(sum_l2, zero), sum_lx / sum_l2, zero))

    return search


def positive(n: int, top: int) -> Any:
    """A search for the scale of what is positive: x ≈ scale * q, q in 0..top (make_qp_quants).

    `q` receives the integers, modulo 256 where a number is negative after all, as ggml stores them. Returns the scale.
    """
    TOP, LEAST = fill_of(i32x8, top), fill_of(i32x8, -(1 << 30))
    whole, HIGH = np.float32(top), fill_of(f32x8, float(top))

    @device
    def search(x, w, q):
        zero = zero_f32()
        highest = zero
        for i in range(n):
            highest = max_f32(highest, load_f32(x + 32 * i))
        flat = less(highest, TINY())
        best_inverse = HIGH() / highest
        scale, best = ONE() / best_inverse, zero
        for i in range(n):
            v = load_f32(x + 32 * i)
            difference = v - scale * cvt_f32(nearest(best_inverse * v) & BYTE())
            best = best + load_f32(w + 32 * i) * difference * difference
        for number in range(-4, 5):
            if number != 0:
                inverse = splat_f32(np.float32(0.1) * np.float32(number) + whole) / highest
                scale, error = ONE() / inverse, zero
                for i in range(n):
                    v = load_f32(x + 32 * i)
                    difference = v - scale * cvt_f32(bounded(nearest(inverse * v), LEAST(), TOP()))
                    error = error + load_f32(w + 32 * i) * difference * difference
                better = less(error, best)
                best, best_inverse = choose(better, error, best), choose(better, inverse, best_inverse)
        sum_lx, sum_l2 = zero, zero
        for i in range(n):
            v, weight = load_f32(x + 32 * i), load_f32(w + 32 * i)
            level = bounded(nearest(best_inverse * v), LEAST(), TOP())
            store_f32(q + 32 * i, choose(flat, zero, cvt_f32(level & BYTE())))
            sum_lx = sum_lx + weight * v * cvt_f32(level)
            sum_l2 = sum_l2 + weight * cvt_f32(level) * cvt_f32(level)
        for _ in range(5):
            changed = False
            for i in range(n):
                v, weight, old = load_f32(x + 32 * i), load_f32(w + 32 * i), load_f32(q + 32 * i)
                lx, l2 = sum_lx - weight * v * old, sum_l2 - weight * old * old
                level = bounded(nearest(v * l2 / lx), LEAST(), TOP())
                new = cvt_f32(level)
                apt = greater(lx, zero) & greater(l2, zero) & differs(new, old)
                lx, l2 = lx + weight * v * new, l2 + weight * new * new
                better = apt & greater(lx * lx * sum_l2, sum_lx * sum_lx * l2)
                store_f32(q + 32 * i, choose(better, cvt_f32(level & BYTE()), old))
                sum_lx, sum_l2 = choose(better, lx, sum_lx), choose(better, l2, sum_l2)
                changed = changed | some(better)
            if not changed:
                break
        return choose(flat, zero, choose(greater(sum_l2, zero), sum_lx / sum_l2, zero))

    return search
