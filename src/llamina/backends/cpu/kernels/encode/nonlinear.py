"""IQ4_NL and IQ4_XS: 16 unevenly spaced levels. The layouts are drawn in `quant/iquants.py`."""

from itertools import pairwise
from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.eights import eight_encoders
from llamina.backends.cpu.kernels.encode.lanes import (
    TINY,
    choose,
    greater,
    less,
    nearest_one,
    spread_32,
    sqrt_f32,
    store_bytes,
    sum_squares,
)
from llamina.backends.cpu.kernels.encode.legacy import half_at, nibbles
from llamina.backends.cpu.kernels.encode.rows import encoders
from llamina.backends.cpu.kernels.vector.memory import f32, set_f16, set_i8, set_i16, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    constant,
    f32x8,
    fill_of,
    i32x8,
    load_f32,
    op,
    splat_f32,
    store_f32,
    zero_f32,
)
from llamina.quant.grids import IQ4_LEVELS

LEVELS = [float(level) for level in IQ4_LEVELS]
MIDDLES = [(a + b) / 2 for a, b in pairwise(LEVELS)]
ONE, MINUS_ONE, SIXTEENTH = fill_of(f32x8, 1.0), fill_of(f32x8, -1.0), fill_of(f32x8, 2 / 32)
LOWEST = np.float32(LEVELS[0])
FIRST = fill_of(f32x8, LEVELS[0])
kept, numbers, weights, scales = stack_of(256), stack_of(1024), stack_of(1024), stack_of(32)


def _level(b: Any, x: Any) -> Any:
    """The value of the nearest level; halfway between two, the upper one."""
    value = constant(f32x8, [LEVELS[0]] * 8)
    for middle, (low, high) in zip(MIDDLES, pairwise(LEVELS), strict=True):
        above = b.fcmp_ordered(">=", x, constant(f32x8, [middle] * 8))
        value = b.fadd(value, b.select(above, constant(f32x8, [high - low] * 8), constant(f32x8, [0.0] * 8)))
    return value


def _index(b: Any, x: Any) -> Any:
    """The number of the nearest level."""
    count = constant(i32x8, [0] * 8)
    for middle in MIDDLES:
        count = b.sub(count, b.sext(b.fcmp_ordered(">=", x, constant(f32x8, [middle] * 8)), i32x8.ir))
    return count


level_of, index_of = op(f32x8, (f32x8,), _level), op(i32x8, (f32x8,), _index)


@device
def sums(x, w, inverse):
    sum_qx, sum_q2 = zero_f32(), zero_f32()
    for i in range(32):
        v = load_f32(x + 32 * i)
        q = level_of(inverse * v)
        weighted = load_f32(w + 32 * i) * q
        sum_qx, sum_q2 = sum_qx + weighted * v, sum_q2 + weighted * q
    return sum_qx, sum_q2


@device
def search(x, w):
    """The scales of eight sub-blocks of 32: those of the best of 16 tries. 0 for sub-blocks of zeros."""
    zero = zero_f32()
    size, value = zero, zero
    for i in range(32):
        v = load_f32(x + 32 * i)
        larger = greater(abs_f32(v), size)
        size, value = choose(larger, abs_f32(v), size), choose(larger, v, value)
    sum_qx, sum_q2 = sums(x, w, ONE() / (value * MINUS_ONE() / FIRST()))
    d = choose(greater(sum_q2, zero), sum_qx / sum_q2, zero)
    best = d * sum_qx
    for number in range(-7, 8):
        sum_qx, sum_q2 = sums(x, w, splat_f32(np.float32(number) + LOWEST) / value)
        better = greater(sum_q2, zero) & greater(sum_qx * sum_qx, best * sum_q2)
        d = choose(better, sum_qx / sum_q2, d)
        best = choose(better, d * sum_qx, best)
    return choose(less(size, TINY()), zero, d)


@device
def weigh_squares(x, w):
    for i in range(32):
        v = load_f32(x + 32 * i)
        store_f32(w + 32 * i, v * v)


@device
def weigh_by_block(x, w, mean):
    """Importances become weights: times the root of the number's square and twice the mean square of its block."""
    total = zero_f32()
    for i in range(32):
        v = load_f32(x + 32 * i)
        total = total + v * v
    for i in range(32):
        v = load_f32(x + 32 * i)
        store_f32(w + 32 * i, load_f32(w + 32 * i) * sqrt_f32(total * SIXTEENTH() + v * v))


put_nibbles, put_half = nibbles(18, 2, 0), half_at(18)


@device
def iq4_nl_weighted(x, w, out):
    d, q = search(x, w), kept()
    inverse = choose(greater(abs_f32(d), zero_f32()), ONE() / d, zero_f32())
    for i in range(32):
        store_bytes(q + 8 * i, index_of(inverse * load_f32(x + 32 * i)))
    put_half(d, out)
    put_nibbles(q, out)


@device
def iq4_nl(x, w, out):
    weigh_squares(x, w)
    iq4_nl_weighted(x, w, out)


def iq4_xs(weighted: bool) -> Any:
    def block(x, w, out):
        xt, wt, found, q = numbers(), weights(), scales(), kept()
        spread_32(x, xt)
        if weighted:
            mean = splat_f32(sum_squares(x, 256) * np.float32(2 / 256))
            spread_32(w, wt)
            for i in range(32):
                v = load_f32(xt + 32 * i)
                store_f32(wt + 32 * i, load_f32(wt + 32 * i) * sqrt_f32(mean + v * v))
        else:
            weigh_squares(xt, wt)
        store_f32(found, search(xt, wt))
        size, largest = np.float32(0), np.float32(0)
        for j in range(8):
            scale = f32(found + 4 * j)
            if abs(scale) > size:
                size, largest = abs(scale), scale
        d = -largest / np.float32(32)
        inverse = np.float32(1) / d if d != np.float32(0) else np.float32(0)
        set_f16(out, d)
        high = 0
        for j in range(8):
            code = max(-32, min(31, nearest_one(inverse * f32(found + 4 * j))))
            step = d * np.float32(code)
            factor = splat_f32(np.float32(1) / step if step != np.float32(0) else np.float32(0))
            for i in range(0, 32, 8):
                store_bytes(q + 32 * j + i, index_of(factor * load_f32(x + 128 * j + 4 * i)))
            low = code + 32 & 15
            set_i8(out + 4 + j // 2, low if j % 2 == 0 else u8(out + 4 + j // 2) | low << 4)
            high |= code + 32 >> 4 << 2 * j
            for i in range(16):
                set_i8(out + 8 + 16 * j + i, u8(q + 32 * j + i) | u8(q + 32 * j + 16 + i) << 4)
        set_i16(out + 2, high)

    return block


KERNELS = {**eight_encoders("IQ4_NL", iq4_nl, iq4_nl_weighted, weigh_by_block), **encoders("IQ4_XS", iq4_xs)}
