"""IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: entries of a codebook of sizes, signs, and a scale per sub-block.

The layouts are drawn in `quant/iquants.py`. Formats with 7 signs to 8 numbers have an even number of negative ones:
where it is odd, the number that matters least changes its sign.
"""

from typing import Any

import numpy as np

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.codebook import (
    BEST_ENTRIES,
    LEVELS,
    ROOTS,
    SCALES,
    SIZE,
    SIZES,
    WEIGHTS_8,
    Codebook,
    searcher,
)
from llamina.backends.cpu.kernels.encode.lanes import (
    bits_of,
    less,
    nearest_one,
    spread_of,
    sqrt_f32,
    sum_squares,
)
from llamina.backends.cpu.kernels.encode.rows import codebook_encoders
from llamina.backends.cpu.kernels.vector.memory import (
    f32,
    set_f16,
    set_f32,
    set_i8,
    set_i16,
    set_i32,
    stack_of,
    u8,
    u16,
)
from llamina.backends.cpu.kernels.vector.simd import abs_f32, load_f32, splat_f32, store_f32, zero_f32

# Behind the scratch memory of the search, of a whole block: signs of 8 numbers each, scales, entries of groups.
SIGNS, ALL_SCALES, ALL_ENTRIES = SIZE, SIZE + 32, SIZE + 96
scratch = stack_of(SIZE + 96 + 128)


@device
def odd(bits):
    bits ^= bits >> 4
    bits ^= bits >> 2
    return (bits ^ bits >> 1) & 1


@device
def flip_least(x, weights, sizes, bits):
    """Change the sign of the number of 8 whose square, weighted, is smallest; returns the signs."""
    least, at = f32(weights) * f32(x) * f32(x), 0
    for i in range(1, 8):
        square = f32(weights + 4 * i) * f32(x + 4 * i) * f32(x + 4 * i)
        if square < least:
            least, at = square, i
    set_f32(sizes + 4 * at, -f32(sizes + 4 * at))
    return bits ^ 1 << at


def block_search(book: Codebook, weighted: bool, even: bool, twice: bool, quarter: bool = False) -> Any:
    """`search(s, x, w, tables)`: a block's signs, scales and entries to scratch memory; returns the largest scale.

    Weights are importances times the root of the number's square and the block's mean square (`twice`: twice that);
    without importances squares, or (`quarter`) squares and a quarter of the mean.
    """
    n, groups = book.n, book.n // book.width
    spread, search = spread_of(n), searcher(book)
    full = 127 if even else 255

    @device
    def weigh(s, x, w, mean):
        """Sizes, signs and weights of eight sub-blocks; row by row, the weights are where the levels will be."""
        for i in range(0, 8 * n, 8):
            v = load_f32(x + 4 * i)
            if weighted:
                weight = load_f32(w + 4 * i) * sqrt_f32(splat_f32(mean) + v * v)
            elif quarter:
                weight = splat_f32(np.float32(0.25) * mean) + v * v
            else:
                weight = v * v
            store_f32(s + LEVELS + 4 * i, weight)
            store_f32(s + ROOTS + 4 * i, sqrt_f32(weight))
            store_f32(s + SIZES + 4 * i, abs_f32(v))

    @device
    def sign(s, x, at):
        for i in range(0, 8 * n, 8):
            bits = bits_of(less(load_f32(x + 4 * i), zero_f32()))
            if even and odd(bits) == 1:
                bits = flip_least(x + 4 * i, s + LEVELS + 4 * i, s + SIZES + 4 * i, bits)
            set_i8(s + SIGNS + at + i // 8, bits & full)

    @device
    def run(s, x, w, tables):
        total = sum_squares(x, 256)
        mean = (total + total if twice else total) / np.float32(256)
        largest = np.float32(0)
        for half in range(256 // (8 * n)):
            weigh(s, x + 512 * half, w + 512 * half, mean)
            sign(s, x + 512 * half, n * half)
            spread(s + LEVELS, s + WEIGHTS_8)
            search(s, tables)
            for j in range(8):
                scale, at = f32(s + SCALES + 4 * j), 8 * half + j
                per = n // 8
                if scale <= np.float32(0):  # no sizes: no signs; a negative scale: all others
                    for i in range(per):
                        signs = s + SIGNS + per * at + i
                        set_i8(signs, 0 if scale == np.float32(0) else ~u8(signs) & full)
                scale = abs(scale)
                set_f32(s + ALL_SCALES + 4 * at, scale)
                largest = max(largest, scale)
                for g in range(groups):
                    set_i16(s + ALL_ENTRIES + 2 * (groups * at + g), u16(s + BEST_ENTRIES + 16 * j + 2 * g))
        return largest

    return run


@device
def code_of(s, j, inverse):
    return max(0, min(15, nearest_one(np.float32(0.5) * (inverse * f32(s + ALL_SCALES + 4 * j) - np.float32(1)))))


@device
def clear(out, nbytes):
    for i in range(nbytes):
        set_i8(out + i, 0)


@device
def signs_and_scale(s, j, inverse):
    """Four times 7 signs, and the code of the scale on top."""
    signs = s + SIGNS + 4 * j
    return u8(signs) | u8(signs + 1) << 7 | u8(signs + 2) << 14 | u8(signs + 3) << 21 | code_of(s, j, inverse) << 28


@device
def put_codes_16(s, inverse, out):
    """The codes of 16 scales, as nibbles."""
    for j in range(8):
        set_i8(out + j, code_of(s, 2 * j, inverse) | code_of(s, 2 * j + 1, inverse) << 4)


def iq2_xxs(weighted: bool) -> Any:
    search = block_search(Codebook(32, 8, 3, 256, 6, 0.1, "always"), weighted, even=True, twice=False)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        clear(out, 66)
        if largest > np.float32(0):
            d = largest / np.float32(31)
            set_f16(out, d)
            for j in range(8):
                for g in range(4):
                    set_i8(out + 2 + 8 * j + g, u16(s + ALL_ENTRIES + 2 * (4 * j + g)))
                set_i32(out + 6 + 8 * j, signs_and_scale(s, j, np.float32(1) / d))

    return block


def iq2_xs(weighted: bool) -> Any:
    search = block_search(Codebook(16, 8, 3, 512, 9, 0.1), weighted, even=True, twice=False)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        clear(out, 74)
        if largest > np.float32(0):
            d = largest / np.float32(31)
            set_f16(out, d)
            for g in range(32):
                set_i16(out + 2 + 2 * g, u16(s + ALL_ENTRIES + 2 * g) | u8(s + SIGNS + g) << 9)
            put_codes_16(s, np.float32(1) / d, out + 66)

    return block


def iq2_s(weighted: bool) -> Any:
    book = Codebook(16, 8, 3, 1024, 9, 0.1, least=1e-8)
    search = block_search(book, weighted, even=False, twice=True, quarter=True)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        clear(out, 82)
        if largest > np.float32(0):
            d = largest / np.float32(31)
            set_f16(out, d * np.float32(0.9875))
            for g in range(32):
                entry = u16(s + ALL_ENTRIES + 2 * g)
                set_i8(out + 2 + g, entry)
                set_i8(out + 34 + g, u8(s + SIGNS + g))
                set_i8(out + 66 + g // 4, u8(out + 66 + g // 4) | entry >> 8 << 2 * (g % 4))
            put_codes_16(s, np.float32(1) / d, out + 74)

    return block


def iq3_xxs(weighted: bool) -> Any:
    search = block_search(Codebook(32, 4, 8, 256, 15, 0.2, least=1e-8), weighted, even=True, twice=True)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        clear(out, 98)
        if largest > np.float32(0):
            d = largest / np.float32(31)
            set_f16(out, d * np.float32(1.0125))
            for g in range(64):
                set_i8(out + 2 + g, u16(s + ALL_ENTRIES + 2 * g))
            for j in range(8):
                set_i32(out + 66 + 4 * j, signs_and_scale(s, j, np.float32(1) / d))

    return block


def iq3_s(weighted: bool) -> Any:
    search = block_search(Codebook(32, 4, 8, 512, 9, 0.2, "all", 1e-45), weighted, even=False, twice=True)

    def block(x, w, out, tables):
        s = scratch()
        largest = search(s, x, w, tables)
        clear(out, 110)
        if largest > np.float32(0):
            d = largest / np.float32(31)
            inverse = np.float32(1) / d
            set_f16(out, d * np.float32(1.033))
            for g in range(64):
                entry = u16(s + ALL_ENTRIES + 2 * g)
                set_i8(out + 2 + g, entry)
                set_i8(out + 66 + g // 8, u8(out + 66 + g // 8) | entry >> 8 << g % 8)
            for g in range(32):
                set_i8(out + 74 + g, u8(s + SIGNS + g))
            for j in range(4):
                set_i8(out + 106 + j, code_of(s, 2 * j, inverse) | code_of(s, 2 * j + 1, inverse) << 4)

    return block


KERNELS = {
    **codebook_encoders("IQ3_S", iq3_s),
    **codebook_encoders("IQ3_XXS", iq3_xxs),
    **codebook_encoders("IQ2_S", iq2_s),
    **codebook_encoders("IQ2_XS", iq2_xs, plain=False),
    **codebook_encoders("IQ2_XXS", iq2_xxs, plain=False),
}
