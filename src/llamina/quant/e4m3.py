"""8-bit floats of 4 exponent and 3 mantissa bits (E4M3FN): no infinities, the largest is 448, 0x7f and 0xff are NaN."""

import numpy as np

from llamina.quant.bits import F32, U8

LARGEST = 448.0


def _values() -> F32:
    """The number of each byte."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    fraction = np.where(exponent > 0, 8 + mantissa, mantissa).astype(np.float32)
    found: F32 = np.ldexp(fraction, np.maximum(exponent, 1) - 10)
    found[0x7F] = found[0xFF] = np.nan
    return np.where(byte < 128, found, -found)


VALUES = _values()
MIDDLES = (VALUES[:126] + VALUES[1:127]) / 2


def decode_e4m3(bits: U8) -> F32:
    return VALUES[bits]


def encode_e4m3(values: F32) -> U8:
    """Round to nearest, ties to even; what is too large becomes the largest."""
    size = np.abs(values)
    below, above = (np.searchsorted(MIDDLES, size, side) for side in ("left", "right"))
    found = np.where(below % 2, above, below)  # they differ where a number is just between two
    found = np.where(np.isnan(values), 0x7F, found)
    bits: U8 = (found | np.signbit(values) << 7).astype(np.uint8)
    return bits
