"""4-bit floats (E2M1) under a shared 8-bit float scale: MXFP4 and NVFP4.

The table of 4-bit floats holds them doubled, so the decoded scale is halved.
"""

import numpy as np

from llamina.quant.bits import F32, U8, fields, scaled
from llamina.quant.grids import FP4_DOUBLED


def _half_e8m0() -> F32:
    """Return, for each byte, half of its power of two: 2 ** (byte - 127) / 2, subnormal ones included."""
    return np.ldexp(np.float32(1), np.arange(256) - 128)


def _half_ue4m3() -> F32:
    """Return, for each byte, half of its float of 4 exponent and 3 mantissa bits; the sign bit is ignored.

    Exponent 0 is subnormal. The pattern of NaN (0x7f) counts as zero, but not with the sign bit set: ggml decodes it
    so, and every byte must decode as there.
    """
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    fraction = np.where(exponent > 0, 8 + mantissa, mantissa).astype(np.float32)
    values: F32 = np.ldexp(fraction, np.maximum(exponent, 1) - 11)
    values[0x7F] = 0
    return values


HALF_E8M0 = _half_e8m0()
HALF_UE4M3 = _half_ue4m3()


def decode_mxfp4(blocks: U8) -> F32:
    """value = 2 ** (e - 127) * float4(q), 32 values to a scale.

    byte 0      e   E8M0 exponent
    byte 1..16  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    return scaled(FP4_DOUBLED[fields(blocks[..., 1:], 4, 16)], HALF_E8M0[blocks[..., :1]])


def decode_nvfp4(blocks: U8) -> F32:
    """value = scale * float4(q), 16 values to a scale.

    byte 0..3   d   [4] E4M3 scales, unsigned
    byte 4..35  qs  [32] nibble planes over 8 bytes, four times
    """
    return scaled(FP4_DOUBLED[fields(blocks[..., 4:], 4, 8)], HALF_UE4M3[blocks[..., :4]])


DECODERS = {"MXFP4": decode_mxfp4, "NVFP4": decode_nvfp4}
