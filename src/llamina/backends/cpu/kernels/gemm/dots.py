"""Two tiles' elements times four tokens: sums of products in the lanes of rows, per instruction set.

A unit of a tile holds four elements of each row side by side, or two where they are 16 bits wide.
"""

from typing import Any

from llamina.backends.cpu.features import HAS_AVX2, HAS_SDOT, HAS_VNNI
from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.formats.blocks import Block32, SuperBlock
from llamina.backends.cpu.kernels.gemm import avx2
from llamina.backends.cpu.kernels.gemm.lanes import (
    add_dot,
    add_madd,
    as_words,
    load_octets,
    load_words,
    low_halves,
    low_words,
    one_words,
    same_2,
    same_4,
    store_eight_ints,
    zero_ints,
    zero_words,
)
from llamina.backends.cpu.kernels.vector.products import mul_u8_i8
from llamina.backends.cpu.tiling import UNIT

ONLY_AVX2 = HAS_AVX2 and not HAS_VNNI


def in_words(form: Block32 | SuperBlock) -> bool:
    """Whether a format's elements are 16 bits wide in tiles: signed bytes, where the CPU has no product for them."""
    return (isinstance(form, Block32) and form.words) or (form.signed and not (HAS_VNNI or HAS_SDOT))


def biased(form: Block32 | SuperBlock) -> bool:
    """Whether signed elements are stored 128 more than they are: the product of VNNI takes unsigned ones."""
    return form.signed and HAS_VNNI


def offset_of(form: Block32 | SuperBlock) -> int:
    """What elements in tiles are too large by."""
    return 128 if biased(form) else form.offset


def products_in_16_bits(most: int) -> int:
    """How many sums of two products of elements and 8-bit activations fit 16 bits, as a power of two up to 8."""
    return max(n for n in (1, 2, 4, 8) if n <= 32767 // (2 * most * 127))


def dots_in_16_bits(steps: int, length: int, plain: bool) -> Any:
    """`count` runs of elements, each times its scales unless `plain`: `steps` products are added in 16 bits."""

    @device
    def run(p, q, x, scale_p, scale_q, count, out):
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero_ints()
        for _ in range(count):
            m, n = one_words() if plain else load_words(scale_p), one_words() if plain else load_words(scale_q)
            for _ in range(length // 4 // steps):
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero_words()
                for _ in range(steps):
                    v, w = load_octets(p), load_octets(q)
                    y0, y1, y2, y3 = same_4(x), same_4(x + 4), same_4(x + 8), same_4(x + 12)
                    a0, a1, a2 = a0 + mul_u8_i8(v, y0), a1 + mul_u8_i8(v, y1), a2 + mul_u8_i8(v, y2)
                    b0, b1, b2 = b0 + mul_u8_i8(w, y0), b1 + mul_u8_i8(w, y1), b2 + mul_u8_i8(w, y2)
                    a3, b3 = a3 + mul_u8_i8(v, y3), b3 + mul_u8_i8(w, y3)
                    p, q, x = p + UNIT, q + UNIT, x + 16
                s0, s1, s2, s3 = add_madd(s0, a0, m), add_madd(s1, a1, m), add_madd(s2, a2, m), add_madd(s3, a3, m)
                t0, t1, t2, t3 = add_madd(t0, b0, n), add_madd(t1, b1, n), add_madd(t2, b2, n), add_madd(t3, b3, n)
            scale_p, scale_q = scale_p + length // 16 * UNIT, scale_q + length // 16 * UNIT
        store_eight_ints(out, s0, s1, s2, s3, t0, t1, t2, t3)

    return run


def dots_in_32_bits(length: int, plain: bool) -> Any:
    """The same where the CPU sums four products at once: nothing can overflow, and a run is scaled when it is whole."""

    @device
    def run(p, q, x, scale_p, scale_q, count, out):
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero_ints()
        for _ in range(count):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero_ints()
            for j in range(length // 4):
                v, w = load_octets(p + UNIT * j), load_octets(q + UNIT * j)
                y0, y1 = same_4(x + 16 * j), same_4(x + 16 * j + 4)
                y2, y3 = same_4(x + 16 * j + 8), same_4(x + 16 * j + 12)
                a0, a1, a2, a3 = add_dot(a0, v, y0), add_dot(a1, v, y1), add_dot(a2, v, y2), add_dot(a3, v, y3)
                b0, b1, b2, b3 = add_dot(b0, w, y0), add_dot(b1, w, y1), add_dot(b2, w, y2), add_dot(b3, w, y3)
            if plain:
                s0, s1, s2, s3, t0, t1, t2, t3 = a0, a1, a2, a3, b0, b1, b2, b3
            else:
                m, n = low_halves(load_words(scale_p)), low_halves(load_words(scale_q))
                s0, s1, s2, s3 = s0 + a0 * m, s1 + a1 * m, s2 + a2 * m, s3 + a3 * m
                t0, t1, t2, t3 = t0 + b0 * n, t1 + b1 * n, t2 + b2 * n, t3 + b3 * n
            p, q, x = p + length // 4 * UNIT, q + length // 4 * UNIT, x + 4 * length
            scale_p, scale_q = scale_p + length // 16 * UNIT, scale_q + length // 16 * UNIT
        store_eight_ints(out, s0, s1, s2, s3, t0, t1, t2, t3)

    return run


def dots_in_sixteens(length: int) -> Any:
    """The same where sums of 16 products fit 16 bits: a word's product and its addition are one instruction."""

    @device
    def run(p, q, x, scale_p, scale_q, count, out):
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero_ints()
        for _ in range(count):
            m, n = low_words(load_words(scale_p)), low_words(load_words(scale_q))
            for _ in range(length // 16):
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero_ints()
                for j in range(4):
                    v, w = load_octets(p + UNIT * j), load_octets(q + UNIT * j)
                    y0, y1 = same_4(x + 16 * j), same_4(x + 16 * j + 4)
                    y2, y3 = same_4(x + 16 * j + 8), same_4(x + 16 * j + 12)
                    a0, a1, a2, a3 = add_dot(a0, v, y0), add_dot(a1, v, y1), add_dot(a2, v, y2), add_dot(a3, v, y3)
                    b0, b1, b2, b3 = add_dot(b0, w, y0), add_dot(b1, w, y1), add_dot(b2, w, y2), add_dot(b3, w, y3)
                s0, s1 = add_madd(s0, as_words(a0), m), add_madd(s1, as_words(a1), m)
                s2, s3 = add_madd(s2, as_words(a2), m), add_madd(s3, as_words(a3), m)
                t0, t1 = add_madd(t0, as_words(b0), n), add_madd(t1, as_words(b1), n)
                t2, t3 = add_madd(t2, as_words(b2), n), add_madd(t3, as_words(b3), n)
                p, q, x = p + 4 * UNIT, q + 4 * UNIT, x + 64
            scale_p, scale_q = scale_p + length // 16 * UNIT, scale_q + length // 16 * UNIT
        store_eight_ints(out, s0, s1, s2, s3, t0, t1, t2, t3)

    return run


@device
def add_words(p, q, x, s0, s1, s2, s3, t0, t1, t2, t3):
    """A unit of words of either tile times four tokens, onto eight sums."""
    v, w, y0, y1, y2, y3 = load_words(p), load_words(q), same_2(x), same_2(x + 4), same_2(x + 8), same_2(x + 12)
    s0, s1, s2, s3 = add_madd(s0, v, y0), add_madd(s1, v, y1), add_madd(s2, v, y2), add_madd(s3, v, y3)
    t0, t1, t2, t3 = add_madd(t0, w, y0), add_madd(t1, w, y1), add_madd(t2, w, y2), add_madd(t3, w, y3)
    return s0, s1, s2, s3, t0, t1, t2, t3


@device
def dots_of_words(p, q, x, scale_p, scale_q, count, out):
    """`count` units of words, an even number, scaled already.

    Every other unit has sums of its own where there are registers for them: with eight an instruction's latency shows.
    """
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = zero_ints()
    u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = zero_ints()
    for _ in range(0, count, 2):
        s0, s1, s2, s3, t0, t1, t2, t3 = add_words(p, q, x, s0, s1, s2, s3, t0, t1, t2, t3)
        if HAS_VNNI:
            u0, u1, u2, u3, v0, v1, v2, v3 = add_words(p + UNIT, q + UNIT, x + 16, u0, u1, u2, u3, v0, v1, v2, v3)
        else:
            s0, s1, s2, s3, t0, t1, t2, t3 = add_words(p + UNIT, q + UNIT, x + 16, s0, s1, s2, s3, t0, t1, t2, t3)
        p, q, x = p + 2 * UNIT, q + 2 * UNIT, x + 32
    store_eight_ints(out, s0 + u0, s1 + u1, s2 + u2, s3 + u3, t0 + v0, t1 + v1, t2 + v2, t3 + v3)


def words_for(units: int) -> Any:
    """The same for `count` times so many units, whichever suits this CPU."""
    if ONLY_AVX2:
        return avx2.words(units)

    @device
    def run(p, q, x, scale_p, scale_q, count, out):
        dots_of_words(p, q, x, scale_p, scale_q, units * count, out)

    return run


def dots_for(form: Block32 | SuperBlock, length: int) -> Any:
    """(tile, tile, group, scales, scales, runs of `length`, target of 8 sums), whichever suits this CPU and format."""
    if in_words(form):
        return words_for(length // 2)
    plain, steps = isinstance(form, Block32), min(products_in_16_bits(form.most), length // 4)
    if HAS_VNNI and not plain and 16 * 127 * form.most < 2**15:
        return dots_in_sixteens(length)
    if HAS_VNNI or HAS_SDOT:
        return dots_in_32_bits(length, plain)
    return avx2.scaled_runs(steps, length) if HAS_AVX2 else dots_in_16_bits(steps, length, plain)
