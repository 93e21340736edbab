"""Two strips' elements times four tokens: sums of products in the lanes of eight rows, per instruction set.

A tile holds four elements of each of 8 rows side by side (32 bytes), or two where they are 16 bits wide.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.features import HAS_SDOT, HAS_VNNI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats import Small, Super
from llamina.backends.cpu.kernels.products import (
    add_dot,
    broadcast_2,
    broadcast_4,
    low_halves,
    madd,
    mul_u8_i8,
    zero_i16,
)
from llamina.backends.cpu.kernels.simd import I64, load_i8x32, load_i16x16, op, zero_i32

opaque = op(types.intp, (types.intp,), lambda b, x: b.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [x], False))
"""The same number, unknown to the compiler: a loop up to it is not unrolled, which would ask for too many registers."""


def in_words(form: Small | Super) -> bool:
    """Whether a format's elements are 16 bits wide in tiles: signed bytes, where the CPU has no product for them."""
    return form.signed and not (HAS_VNNI or HAS_SDOT)


def biased(form: Small | Super) -> bool:
    """Whether signed elements are stored 128 more than they are: the product of VNNI takes unsigned ones."""
    return form.signed and HAS_VNNI


def offset_of(form: Small | Super) -> int:
    """What elements in tiles are too large by."""
    return 128 if biased(form) else form.offset


def products_in_16_bits(most: int) -> int:
    """How many sums of two products of elements and 8-bit activations fit 16 bits, as a power of two up to 8."""
    return max(n for n in (1, 2, 4, 8) if n <= 32767 // (2 * most * 127))


def dots_in_16_bits(steps: int, length: int) -> Any:
    """`length` elements, scaled, onto the sums: `steps` products are added in 16 bits."""

    @device
    def run(p, q, x, scale_p, scale_q, s0, s1, s2, s3, t0, t1, t2, t3):
        for i in range(0, opaque(length // 4), steps):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero_i16()
            for j in range(i, i + (opaque(steps) if steps > 2 else steps)):
                v, w = load_i8x32(p + 32 * j), load_i8x32(q + 32 * j)
                y = broadcast_4(x + 16 * j)
                a0, b0 = a0 + mul_u8_i8(v, y), b0 + mul_u8_i8(w, y)
                y = broadcast_4(x + 16 * j + 4)
                a1, b1 = a1 + mul_u8_i8(v, y), b1 + mul_u8_i8(w, y)
                y = broadcast_4(x + 16 * j + 8)
                a2, b2 = a2 + mul_u8_i8(v, y), b2 + mul_u8_i8(w, y)
                y = broadcast_4(x + 16 * j + 12)
                a3, b3 = a3 + mul_u8_i8(v, y), b3 + mul_u8_i8(w, y)
            s0, s1 = s0 + madd(a0, scale_p), s1 + madd(a1, scale_p)
            s2, s3 = s2 + madd(a2, scale_p), s3 + madd(a3, scale_p)
            t0, t1 = t0 + madd(b0, scale_q), t1 + madd(b1, scale_q)
            t2, t3 = t2 + madd(b2, scale_q), t3 + madd(b3, scale_q)
        return s0, s1, s2, s3, t0, t1, t2, t3

    return run


def dots_in_32_bits(length: int) -> Any:
    """The same where the CPU sums four products at once: nothing can overflow, and a run is scaled when it is whole."""

    @device
    def run(p, q, x, scale_p, scale_q, s0, s1, s2, s3, t0, t1, t2, t3):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero_i32()
        for j in range(length // 4):
            v, w = load_i8x32(p + 32 * j), load_i8x32(q + 32 * j)
            y0, y1 = broadcast_4(x + 16 * j), broadcast_4(x + 16 * j + 4)
            y2, y3 = broadcast_4(x + 16 * j + 8), broadcast_4(x + 16 * j + 12)
            a0, a1, a2, a3 = add_dot(a0, v, y0), add_dot(a1, v, y1), add_dot(a2, v, y2), add_dot(a3, v, y3)
            b0, b1, b2, b3 = add_dot(b0, w, y0), add_dot(b1, w, y1), add_dot(b2, w, y2), add_dot(b3, w, y3)
        m, n = low_halves(scale_p), low_halves(scale_q)
        s0, s1, s2, s3 = s0 + a0 * m, s1 + a1 * m, s2 + a2 * m, s3 + a3 * m
        return s0, s1, s2, s3, t0 + b0 * n, t1 + b1 * n, t2 + b2 * n, t3 + b3 * n

    return run


def dots_of_words(length: int) -> Any:
    """Elements of 16 bits, scaled already."""

    @device
    def run(p, q, x, scale_p, scale_q, s0, s1, s2, s3, t0, t1, t2, t3):
        for i in range(0, opaque(length // 2), 2):
            for j in range(i, i + 2):
                v, w = load_i16x16(p + 32 * j), load_i16x16(q + 32 * j)
                y = broadcast_2(x + 16 * j)
                s0, t0 = s0 + madd(v, y), t0 + madd(w, y)
                y = broadcast_2(x + 16 * j + 4)
                s1, t1 = s1 + madd(v, y), t1 + madd(w, y)
                y = broadcast_2(x + 16 * j + 8)
                s2, t2 = s2 + madd(v, y), t2 + madd(w, y)
                y = broadcast_2(x + 16 * j + 12)
                s3, t3 = s3 + madd(v, y), t3 + madd(w, y)
        return s0, s1, s2, s3, t0, t1, t2, t3

    return run


def dots_for(form: Small | Super, length: int) -> Any:
    """Whichever suits this CPU and format: (tile, tile, group, scales, scales, 8 sums) → 8 sums."""
    if in_words(form):
        return dots_of_words(length)
    if HAS_VNNI or HAS_SDOT:
        return dots_in_32_bits(length)
    return dots_in_16_bits(min(products_in_16_bits(form.most), length // 4), length)
