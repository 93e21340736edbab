"""The K formats: 256 values in 16 sub-blocks of 16 or 8 of 32, whose scales are themselves small integers.

value = (d * scale) * q, minus (dmin * min) where the format has minima; the products in brackets come
first. Bits are packed in planes (see `bits.fields`): with 2-bit fields, 32 bytes hold values 0..31 in their
lowest bits, values 32..63 in the next, and so on.
"""

import numpy as np

from llamina.quant.bits import F32, U8, fields, half, scaled


def decode_q2_k(blocks: U8) -> F32:
    """value = d * scale * q - dmin * min, 16 values to a scale.

    byte 0..15   scales  [16] low nibble = scale, high nibble = min
    byte 16..79  qs      [64] 2-bit planes over 32 bytes, twice
    byte 80..81  d       f16
    byte 82..83  dmin    f16
    """
    scales = half(blocks, 80) * (blocks[..., :16] & 15)
    mins = half(blocks, 82) * (blocks[..., :16] >> 4)
    return _minus(scaled(fields(blocks[..., 16:80], 2, 32), scales), mins)


def decode_q3_k(blocks: U8) -> F32:
    """value = d * (scale - 32) * (q - 4), 16 values to a scale.

    byte 0..31     hmask   [32] third bits of q, 8 planes over 32 bytes
    byte 32..95    qs      [64] lower two bits, 2-bit planes over 32 bytes, twice
    byte 96..103   scales  [8] lower four bits: low nibbles = scales 0..7, high nibbles = 8..15
    byte 104..107  scales  [4] upper two bits, 2-bit planes over 4 bytes
    byte 108..109  d       f16
    """
    scales = fields(blocks[..., 96:104], 4, 8) | fields(blocks[..., 104:108], 2, 4) << np.uint8(4)
    q = fields(blocks[..., 32:96], 2, 32) | fields(blocks[..., :32], 1, 32) << np.uint8(2)
    d = half(blocks, 108) * (scales.view(np.int8) - np.int8(32))
    return scaled(q.view(np.int8) - np.int8(4), d)


def decode_q4_k(blocks: U8) -> F32:
    """value = d * scale * q - dmin * min, 32 values to a scale.

    byte 0..1     d       f16
    byte 2..3     dmin    f16
    byte 4..15    scales  [12] 8 scales and 8 mins of 6 bits, see `_scales_and_mins`
    byte 16..143  qs      [128] nibble planes over 32 bytes, four times
    """
    scales, mins = _scales_and_mins(blocks)
    return _minus(scaled(fields(blocks[..., 16:], 4, 32), scales), mins)


def decode_q5_k(blocks: U8) -> F32:
    """value = d * scale * q - dmin * min, 32 values to a scale.

    byte 0..1     d       f16
    byte 2..3     dmin    f16
    byte 4..15    scales  [12] 8 scales and 8 mins of 6 bits, see `_scales_and_mins`
    byte 16..47   qh      [32] fifth bits, 8 planes over 32 bytes
    byte 48..175  qs      [128] nibble planes over 32 bytes, four times
    """
    scales, mins = _scales_and_mins(blocks)
    q = fields(blocks[..., 48:], 4, 32) | fields(blocks[..., 16:48], 1, 32) << np.uint8(4)
    return _minus(scaled(q, scales), mins)


def decode_q6_k(blocks: U8) -> F32:
    """value = d * scale * (q - 32), 16 values to a scale.

    byte 0..127    ql      [128] lower four bits, nibble planes over 64 bytes, twice
    byte 128..191  qh      [64] upper two bits, 2-bit planes over 32 bytes, twice
    byte 192..207  scales  [16] int8
    byte 208..209  d       f16
    """
    q = fields(blocks[..., :128], 4, 64) | fields(blocks[..., 128:192], 2, 32) << np.uint8(4)
    d = half(blocks, 208) * blocks[..., 192:208].view(np.int8)
    return scaled(q.view(np.int8) - np.int8(32), d)


def decode_q8_k(blocks: U8) -> F32:
    """value = d * q; the sums are for dot products only.

    byte 0..3      d      f32
    byte 4..259    qs     [256] int8
    byte 260..291  bsums  [16] int16, the sum of each 16 values
    """
    return scaled(blocks[..., 4:260].view(np.int8), blocks[..., :4].view("<f4").astype(np.float32))


def _scales_and_mins(blocks: U8) -> tuple[F32, F32]:
    """Return the float scales and mins of Q4_K and Q5_K, [..., 8] each.

    Of the 12 packed bytes, 0..3 hold scales 0..3 in six bits, 4..7 mins 0..3; the nibbles of 8..11 are the
    lower four bits of scales (low) and mins (high) 4..7, whose upper two bits are those left over in 0..3
    and 4..7.
    """
    first, second, last = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate([first & 63, (last & 15) | (first >> 6) << 4], axis=-1)
    mins = np.concatenate([second & 63, (last >> 4) | (second >> 6) << 4], axis=-1)
    return half(blocks, 0) * scales, half(blocks, 2) * mins


def _minus(values: F32, mins: F32) -> F32:
    """Subtract each run's minimum, in place."""
    runs = values.reshape(*mins.shape, -1)
    runs -= mins[..., None]
    return values


DECODERS = {
    "Q2_K": decode_q2_k,
    "Q3_K": decode_q3_k,
    "Q4_K": decode_q4_k,
    "Q5_K": decode_q5_k,
    "Q6_K": decode_q6_k,
    "Q8_K": decode_q8_k,
}
