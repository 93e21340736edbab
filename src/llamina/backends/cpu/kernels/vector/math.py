"""Vector maths (exp, tanh, sigmoid), and the part of a range that a thread has to do."""

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.simd import (
    abs_f32,
    exp2_int,
    f32x8,
    fill_of,
    fma,
    less_then,
    load_f32,
    load_f32_part,
    max_f32,
    min_f32,
    round_f32,
    store_f32,
    store_f32_part,
    zero_f32,
)

LOG2E, LN2_HIGH, LN2_LOW = (
    fill_of(f32x8, 1.4426950408889634),
    fill_of(f32x8, 0.693359375),
    fill_of(f32x8, -2.12194440e-4),
)
TOP, BOTTOM = fill_of(f32x8, 88.0), fill_of(f32x8, -87.0)
C0, C1, C2 = fill_of(f32x8, 1.9875691500e-4), fill_of(f32x8, 1.3981999507e-3), fill_of(f32x8, 8.3334519073e-3)
C3, C4, C5 = fill_of(f32x8, 4.1665795894e-2), fill_of(f32x8, 1.6666665459e-1), fill_of(f32x8, 5.0000001201e-1)
ONE, TWO, HALF, MINUS_ONE = (fill_of(f32x8, x) for x in (1.0, 2.0, 0.5, -1.0))
BY_3, BY_5, BY_7, BY_9, BY_11, BY_13, BY_15 = (fill_of(f32x8, 1 / x) for x in (3, 5, 7, 9, 11, 13, 15))


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


@device
def exp8(x):
    """e**x to about 1 ulp; 0 below -87 (so of -inf), and no infinity: inputs above 88 count as 88."""
    y = max_f32(min_f32(x, TOP()), BOTTOM())
    n = round_f32(y * LOG2E())
    r = fma(n, LN2_LOW() * MINUS_ONE(), fma(n, LN2_HIGH() * MINUS_ONE(), y))
    p = fma(fma(fma(fma(fma(C0(), r, C1()), r, C2()), r, C3()), r, C4()), r, C5())
    value = fma(p, r * r, r) + ONE()
    return less_then(x, BOTTOM(), value * exp2_int(n))


@device
def sigmoid8(x):
    return ONE() / (ONE() + exp8(x * MINUS_ONE()))


@device
def tanh8(x):
    return ONE() - TWO() / (exp8(x + x) + ONE())


@device
def softplus8(x):
    """log(1 + e**x) = max(x, 0) + log1p(u), u = e**-|x|; log1p(u) = 2·atanh(s), s = u / (2 + u) ≤ 1/3, as a series."""
    u = exp8(abs_f32(x) * MINUS_ONE())
    s = u / (TWO() + u)
    z = s * s
    p = fma(fma(fma(fma(BY_15(), z, BY_13()), z, BY_11()), z, BY_9()), z, BY_7())
    p = fma(fma(fma(p, z, BY_5()), z, BY_3()), z, ONE())
    return fma(s + s, p, max_f32(x, zero_f32()))
