"""TQ1_0, TQ2_0, Q1_0 and Q2_0: one scale, and one or two bits or a trit to a number.

The layouts are drawn in `quant/ternary.py`.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.lanes import choose, greater, store_bytes, trunc_f32
from llamina.backends.cpu.kernels.encode.microscale import largest
from llamina.backends.cpu.kernels.encode.rows import plain_encoder
from llamina.backends.cpu.kernels.vector.memory import f32, set_f16, set_i8, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    f32x8,
    fill_of,
    load_f32,
    splat_f32,
    to_i32,
    zero_f32,
)

ONE, MINUS_ONE, HALF = (fill_of(f32x8, x) for x in (1.0, -1.0, 0.5))
kept = stack_of(256)


@device
def trits(x, d, q, n):
    """n numbers as 0, 1 or 2, halves rounded away from zero: -d, 0 or d, of which d is the largest size."""
    inverse = splat_f32(np.float32(1) / d if d > np.float32(0) else np.float32(0))
    for i in range(0, n, 8):
        v = load_f32(x + 4 * i) * inverse
        whole = trunc_f32(v)
        away = choose(greater(zero_f32(), v), MINUS_ONE(), ONE())
        store_bytes(q + i, to_i32(choose(greater(HALF(), abs_f32(v - whole)), whole, whole + away) + ONE()))


def fives(first: int, run: int, count: int) -> Any:
    """`run` bytes of `count` trits each, `run` numbers apart, the first in the highest place of five."""

    @device
    def put(q, out):
        for i in range(run):
            code = 0
            for n in range(5):
                code = 3 * code + (u8(q + first + i + run * n) if n < count else 0)
            set_i8(out + i, (code * 256 + 242) // 243)

    return put


far, near, last = fives(0, 32, 5), fives(160, 16, 5), fives(240, 4, 4)


def tq1_0(x, w, out):
    d, q = largest(x, 256), kept()
    set_f16(out + 52, d)
    trits(x, d, q, 256)
    far(q, out)
    near(q, out + 32)
    last(q, out + 48)


def tq2_0(x, w, out):
    d, q = largest(x, 256), kept()
    set_f16(out + 64, d)
    trits(x, d, q, 256)
    for j in range(2):
        for i in range(32):
            p = q + 128 * j + i
            set_i8(out + 32 * j + i, u8(p) | u8(p + 32) << 2 | u8(p + 64) << 4 | u8(p + 96) << 6)


def q1_0(x, w, out):
    total = np.float32(0)
    for i in range(128):
        total += abs(f32(x + 4 * i))
    set_f16(out, total / np.float32(128))
    for i in range(16):
        code = 0
        for n in range(8):
            code |= (1 if f32(x + 32 * i + 4 * n) >= np.float32(0) else 0) << n
        set_i8(out + 2 + i, code)


def q2_0(x, w, out):
    d, q = largest(x, 64), kept()
    set_f16(out, d)
    trits(x, d, q, 64)
    for i in range(16):
        p = q + 4 * i
        set_i8(out + 2 + i, u8(p) | u8(p + 1) << 2 | u8(p + 2) << 4 | u8(p + 3) << 6)


KERNELS = {
    **plain_encoder("TQ1_0", tq1_0),
    **plain_encoder("TQ2_0", tq2_0),
    **plain_encoder("Q1_0", q1_0),
    **plain_encoder("Q2_0", q2_0),
}
