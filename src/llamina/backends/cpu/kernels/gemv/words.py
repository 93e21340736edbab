"""GEMV of float weights as blocks of words (`formats/halves`): eight rows times one token."""

from typing import Any

from llamina.backends.cpu.features import HAS_VNNI
from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.formats.halves import NUMBERS, Numbers, dots_of, exponents_of, worth
from llamina.backends.cpu.kernels.gemv.blocks import NEAR, prefetch_lines, rows_after
from llamina.backends.cpu.kernels.vector.math import first
from llamina.backends.cpu.kernels.vector.memory import f32, stack_of
from llamina.backends.cpu.kernels.vector.simd import cvt_f32, fma, i32x8, loader, splat_f32, zero_f32

sums = stack_of(64)
load_sums = loader(i32x8)


def gemv_words(numbers: Numbers) -> Any:
    """One token, or two at once, whose sums are those of either alone."""
    one, two = dots_of(numbers, 1), dots_of(numbers, 2)

    @device
    def gemv(p0, w_row, last, exponents, x, y, k):
        p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
        ahead, near, found = p0 + 8 * w_row, 8 * w_row <= NEAR, sums()
        acc = other = zero_f32()
        for b in range(k // 32):
            at, here = 64 * b, exponents + 8 * b
            scale_at = 2 * k + 4 * b
            prefetch_lines(ahead + 8 * at, 512, near)
            if x == y:
                one(
                    here, found, x + at,
                    p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at,
                )  # fmt: skip
            else:
                two(
                    here, found, x + at, y + at,
                    p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at,
                )  # fmt: skip
                other = fma(cvt_f32(load_sums(found + 32)), worth(here) * splat_f32(f32(y + scale_at)), other)
            acc = fma(cvt_f32(load_sums(found)), worth(here) * splat_f32(f32(x + scale_at)), acc)
        return acc, other

    return gemv


def exponents_kernel(numbers: Numbers) -> Any:
    put = exponents_of(numbers)

    @kernel(writes=("out",))
    def run(thread, threads, w, w_row, rows, k, out):
        """What the words of each block of a matrix are worth."""
        eights, blocks = (rows + 7) // 8, k // 32
        for e in range(first(eights, thread, threads), first(eights, thread + 1, threads)):
            p0 = w + 8 * e * w_row
            p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, min(rows - 8 * e, 8) - 1)
            for b in range(blocks):
                at = 64 * b
                put(
                    out + 8 * (e * blocks + b),
                    p0 + at, p1 + at, p2 + at, p3 + at, p4 + at, p5 + at, p6 + at, p7 + at,
                )  # fmt: skip

    return run


GEMV = {name: gemv_words(numbers) for name, numbers in NUMBERS.items()} if HAS_VNNI else {}
KERNELS = {f"exponents.{name}": exponents_kernel(NUMBERS[name]) for name in GEMV}
