"""MXFP4 and NVFP4: 4-bit floats with a scale to each 32 or 16. The layouts are drawn in `quant/microscale.py`."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.encode.lanes import store_bytes
from llamina.backends.cpu.kernels.encode.rows import plain_encoder
from llamina.backends.cpu.kernels.vector.memory import set_i8, stack_of, u8
from llamina.backends.cpu.kernels.vector.simd import (
    I32,
    I64,
    abs_f32,
    constant,
    f32x8,
    hmax_f32,
    i32x8,
    load_f32,
    max_f32,
    op,
    splat_f32,
    zero_f32,
)

MIDDLES = (0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0)  # between 0, 1, 2, 3, 4, 6, 8, 12: the doubled sizes
kept = stack_of(32)

bits_of = op(types.intp, (types.float32,), lambda b, x: b.zext(b.bitcast(x, I32), I64))
float_of = op(types.float32, (types.intp,), lambda b, x: b.bitcast(b.trunc(x, I32), ir.FloatType()))


def _code(b: Any, x: Any, d: Any) -> Any:
    """The nearest of d * FP4_DOUBLED; halfway between two, the smaller. Zero has no sign."""
    size = b.bitcast(b.and_(b.bitcast(x, i32x8.ir), constant(i32x8, [0x7FFFFFFF] * 8)), f32x8.ir)
    zero = constant(i32x8, [0] * 8)
    count = zero
    for middle in MIDDLES:
        edge = b.fmul(d, constant(f32x8, [middle] * 8))
        count = b.sub(count, b.sext(b.fcmp_ordered(">", size, edge), i32x8.ir))
    minus = b.and_(b.fcmp_ordered("<", x, constant(f32x8, [0.0] * 8)), b.icmp_signed(">", count, zero))
    return b.or_(count, b.select(minus, constant(i32x8, [8] * 8), zero))


code_of = op(i32x8, (f32x8, f32x8), _code)


@device
def largest(x, n):
    top = zero_f32()
    for i in range(0, n, 8):
        top = max_f32(abs_f32(load_f32(x + 4 * i)), top)
    return hmax_f32(top)


@device
def put_codes(x, d, out, n):
    """n codes in n / 2 bytes: the first half in low nibbles, the second in high ones."""
    q = kept()
    for i in range(0, n, 8):
        store_bytes(q + i, code_of(load_f32(x + 4 * i), splat_f32(d)))
    for i in range(n // 2):
        set_i8(out + i, u8(q + i) | u8(q + n // 2 + i) << 4)


@device
def floor_log2(x):
    """floor(log2f(x)), which rounds up where x is a few units of the last place below a power of two."""
    bits = bits_of(x)
    if bits < 1 << 23:
        return np.int64(np.floor(np.float32(np.log2(np.float64(x)))))
    exponent, mantissa = (bits >> 23) - 127, bits & 0x7FFFFF
    if mantissa < 0x7FFF00:
        return exponent
    return np.int64(np.floor(np.float32(np.log2(np.float64(x)))))


def mxfp4(x, w, out):
    top = largest(x, 32)
    exponent = floor_log2(top) + 125 if top > np.float32(0) else 0
    set_i8(out, exponent)
    exponent &= 255
    # 2 ** (exponent - 128), as a float's own exponent or below the normal ones.
    put_codes(x, float_of(exponent - 1 << 23 if exponent > 1 else 0x200000 << exponent), out + 1, 32)


@device
def to_ue4m3(x):
    """A positive float with 4 exponent bits and 3 of mantissa; halves of the last place are rounded up."""
    if not x > np.float32(0):
        return 0
    bits = bits_of(min(x, np.float32(448)))
    exponent = (bits >> 23) - 120
    if exponent <= 0:
        return min(7, int(min(x, np.float32(448)) * np.float32(512) + np.float32(0.5)))
    code = (exponent << 3) + (bits >> 20 & 7) + (bits >> 19 & 1)
    return min(code, 0x7E) if exponent < 15 else 0x7E


@device
def of_ue4m3(code):
    """Half of what the code stands for, as the levels are doubled. Infinity for 0, by which all codes become 0."""
    if code == 0:
        return np.float32(np.inf)
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 0:
        return np.float32(mantissa) * np.float32(2.0**-10)
    return (np.float32(1) + np.float32(mantissa) / np.float32(8)) * float_of(exponent + 119 << 23)


def nvfp4(x, w, out):
    for j in range(4):
        source = x + 64 * j
        code = to_ue4m3(largest(source, 16) / np.float32(6))
        set_i8(out + j, code)
        put_codes(source, of_ue4m3(code), out + 4 + 8 * j, 16)


KERNELS = {**plain_encoder("MXFP4", mxfp4), **plain_encoder("NVFP4", nvfp4)}
