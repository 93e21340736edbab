"""Formats that are not quantized: floats of 16, 32 and 64 bits, and signed integers. A block is one value."""

from collections.abc import Callable

import numpy as np

from llamina.quant.bits import F32, U8


def decode_bf16(blocks: U8) -> F32:
    """The upper half of a float32.

    byte 0..1  [2] sign 1, exponent 8, mantissa 7
    """
    wide = blocks.view("<u2").astype("<u4") << 16
    return wide.view("<f4").astype(np.float32, copy=False)


def encode_f32(values: F32) -> U8:
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def encode_f16(values: F32) -> U8:
    """Round to nearest, ties to even; a NaN becomes a quiet one."""
    bits = values.astype("<f2").view("<u2")
    bits[np.isnan(values)] |= 0x0200
    return bits.view(np.uint8)


def encode_bf16(values: F32) -> U8:
    """Round to nearest, ties to even; a NaN keeps its sign and upper payload and becomes a quiet one."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    upper = (bits >> 16).astype("<u2")
    # Add just under half a unit, or exactly half where the upper part is odd: the carry rounds ties to even.
    rounded = ((bits + (0x7FFF + (upper & 1).astype("<u4"))) >> 16).astype("<u2")
    return np.where(np.isnan(values), upper | 0x0040, rounded).astype("<u2").view(np.uint8)


def _decoder(dtype: str) -> Callable[[U8], F32]:
    """Return the decoder of a NumPy dtype; wider values are rounded to the nearest float32."""
    return lambda blocks: blocks.view(dtype).astype(np.float32)


DECODERS = {
    "F32": _decoder("<f4"),
    "F16": _decoder("<f2"),
    "BF16": decode_bf16,
    "F64": _decoder("<f8"),
    "I8": _decoder("<i1"),
    "I16": _decoder("<i2"),
    "I32": _decoder("<i4"),
    "I64": _decoder("<i8"),
}

ENCODERS = {"F32": encode_f32, "F16": encode_f16, "BF16": encode_bf16}
