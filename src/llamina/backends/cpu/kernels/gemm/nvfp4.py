"""Tiles of NVFP4: what lies beside a run of 32 is a scale for each of its halves, and each has its own multiply-add."""

from typing import Any

from llamina.backends.cpu.kernels.device import device, routine
from llamina.backends.cpu.kernels.formats.blocks import Block32
from llamina.backends.cpu.kernels.gemm import avx2
from llamina.backends.cpu.kernels.gemm.dots import ONLY_AVX2, dots_for
from llamina.backends.cpu.kernels.gemm.gemm import eight_sums, gemm_rows, load_eight, sum_at
from llamina.backends.cpu.kernels.gemm.lanes import (
    as_floats,
    fma,
    load_floats,
    splat_float,
    splat_int,
    store_eight_floats,
)
from llamina.backends.cpu.kernels.gemm.tokens import gather_32
from llamina.backends.cpu.kernels.gemv.blocks import rows_after
from llamina.backends.cpu.kernels.gemv.nvfp4 import NBYTES, OFFSET, scale_0, scale_1, scale_2, scale_3, values
from llamina.backends.cpu.kernels.vector.memory import f32, i32
from llamina.backends.cpu.kernels.vector.simd import gather_words, store_f32
from llamina.backends.cpu.kernels.vector.transpose import byte_columns
from llamina.backends.cpu.tiling import SMALL_SIDE, UNIT

FORM = Block32(values, NBYTES, 2 * OFFSET, offset=OFFSET, runs=2)


@routine
def unpack(p0, w_row, last, k, tile, ahead, exponents):
    p1, p2, p3, p4, p5, p6, p7 = rows_after(p0, w_row, last)
    scales = tile + 8 * UNIT * (k // 32)
    for _ in range(k // 64):
        for j in range(2):
            byte_columns(
                tile,
                values(p0, j), values(p1, j), values(p2, j), values(p3, j),
                values(p4, j), values(p5, j), values(p6, j), values(p7, j),
            )  # fmt: skip
            tile += 8 * UNIT
        s = gather_words(p0, p1, p2, p3, p4, p5, p6, p7)
        store_f32(scales, scale_0(s))
        store_f32(scales + UNIT, scale_1(s))
        store_f32(scales + 2 * UNIT, scale_2(s))
        store_f32(scales + 3 * UNIT, scale_3(s))
        scales += 4 * UNIT
        p0, p1, p2, p3 = p0 + NBYTES, p1 + NBYTES, p2 + NBYTES, p3 + NBYTES
        p4, p5, p6, p7 = p4 + NBYTES, p5 + NBYTES, p6 + NBYTES, p7 + NBYTES


def multiply_for_avx2() -> Any:
    runs = avx2.half_runs()

    @device
    def multiply(p, q, c, d, k, x, results):
        runs(p, q, x, c, d, k // 32, results)

    return multiply


def multiply_elsewhere() -> Any:
    dots = dots_for(FORM, 16)

    @device
    def finish(sums, token, cell, less, d, e, f, g):
        """A token's half of a run, times both tiles, onto its results."""
        scale, minus = splat_float(f32(cell + 4 * token)), splat_int(i32(less + 4 * token))
        f = fma(as_floats(sum_at(sums, token) + minus), d * scale, f)
        return f, fma(as_floats(sum_at(sums, 4 + token) + minus), e * scale, g)

    @device
    def multiply(p, q, scales_p, scales_q, k, x, results):
        f0, f1, f2, f3, g0, g1, g2, g3 = load_eight(results)
        s = eight_sums()
        for _ in range(k // 32):
            cell = x + 128
            for half in range(2):
                dots(p, q, x, 0, 0, 1, s)
                less, d, e = cell + 16 + 16 * half, load_floats(scales_p), load_floats(scales_q)
                f0, g0 = finish(s, 0, cell, less, d, e, f0, g0)
                f1, g1 = finish(s, 1, cell, less, d, e, f1, g1)
                f2, g2 = finish(s, 2, cell, less, d, e, f2, g2)
                f3, g3 = finish(s, 3, cell, less, d, e, f3, g3)
                p, q, x = p + 4 * UNIT, q + 4 * UNIT, x + 64
                scales_p, scales_q = scales_p + UNIT, scales_q + UNIT
            x += SMALL_SIDE
        store_eight_floats(results, f0, f1, f2, f3, g0, g1, g2, g3)

    return multiply


GEMM = gemm_rows(
    FORM, unpack, multiply_for_avx2() if ONLY_AVX2 else multiply_elsewhere(), gather_32(False, OFFSET, halves=True)
)
