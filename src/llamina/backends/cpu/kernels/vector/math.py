"""Vector maths (exp, tanh, sigmoid) in registers of any width, and the part of a range that a thread has to do."""

from typing import Any

from llvmlite import ir

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    Vec,
    f32x8,
    fill_of,
    fma_of,
    intrinsic_call,
    load_f32,
    load_f32_part,
    math_of,
    max_of,
    op,
    store_f32,
    store_f32_part,
)

LOG2E, LN2_HIGH, LN2_LOW, TOP, BOTTOM = 1.4426950408889634, 0.693359375, -2.12194440e-4, 88.0, -87.0
EXP = 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1


@device
def first(total, thread, threads):
    """Where a thread's contiguous share begins; it ends where the next one's begins."""
    return total * thread // threads


@device
def load_lanes(address, lanes):
    """The first lanes of a register, zeros in the others."""
    return load_f32(address) if lanes >= 8 else load_f32_part(address, lanes)


@device
def store_lanes(address, value, lanes):
    if lanes >= 8:
        store_f32(address, value)
    else:
        store_f32_part(address, value, lanes)


def exp_of(vec: Vec) -> Any:
    """(x) → e**x to about 1 ulp; 0 below -87 (so of -inf), and no infinity: inputs above 88 count as 88."""
    lanes = vec.ir.count
    ints = ir.VectorType(I32, lanes)

    def body(b: Any, x: Any) -> Any:
        def all_of(value: float) -> Any:
            return ir.Constant(vec.ir, [value] * lanes)

        def fma(x: Any, y: Any, z: Any) -> Any:
            return intrinsic_call(b, f"llvm.fma.v{lanes}f32", vec.ir, [x, y, z])

        low, high, one = all_of(BOTTOM), all_of(TOP), all_of(1.0)
        y = b.select(b.fcmp_ordered("<", x, high), x, high)
        n = intrinsic_call(b, f"llvm.rint.v{lanes}f32", vec.ir, [b.fmul(y, all_of(LOG2E))])
        r = fma(n, all_of(-LN2_LOW), fma(n, all_of(-LN2_HIGH), y))
        p = all_of(EXP[0])
        for factor in EXP[1:]:
            p = fma(p, r, all_of(factor))
        value = b.fadd(fma(p, b.fmul(r, r), r), one)
        biased = b.add(b.fptosi(n, ints), ir.Constant(ints, [127] * lanes))  # 2**n, built as a float's exponent
        power = b.bitcast(b.shl(biased, ir.Constant(ints, [23] * lanes)), vec.ir)
        small = b.fcmp_ordered("<", x, low)  # what was computed of such an x means nothing
        return b.select(small, all_of(0.0), b.fmul(value, power))

    return op(vec, (vec,), body)


def sigmoid_of(vec: Vec) -> Any:
    exp, one, minus_one = exp_of(vec), fill_of(vec, 1.0), fill_of(vec, -1.0)
    return device(lambda x: one() / (one() + exp(x * minus_one())))


def tanh_of(vec: Vec) -> Any:
    exp, one, two = exp_of(vec), fill_of(vec, 1.0), fill_of(vec, 2.0)
    return device(lambda x: one() - two() / (exp(x + x) + one()))


def softplus_of(vec: Vec) -> Any:
    """log(1 + e**x) = max(x, 0) + log1p(u), u = e**-|x|; log1p(u) = 2·atanh(s), s = u / (2 + u) ≤ 1/3, as a series."""
    exp, fma, size, most = exp_of(vec), fma_of(vec), math_of(vec, "fabs"), max_of(vec)
    zero, one, two, minus_one = (fill_of(vec, x) for x in (0.0, 1.0, 2.0, -1.0))
    by_3, by_5, by_7, by_9, by_11, by_13, by_15 = (fill_of(vec, 1 / x) for x in (3, 5, 7, 9, 11, 13, 15))

    @device
    def softplus(x):
        u = exp(size(x) * minus_one())
        s = u / (two() + u)
        z = s * s
        p = fma(fma(fma(fma(by_15(), z, by_13()), z, by_11()), z, by_9()), z, by_7())
        p = fma(fma(fma(p, z, by_5()), z, by_3()), z, one())
        return fma(s + s, p, most(x, zero()))

    return softplus


exp8, tanh8 = exp_of(f32x8), tanh_of(f32x8)
