"""The first block formats: 32 values with one scale, and a minimum in the `_1` formats.

`_0` is value = d * q with q around zero; `_1` is value = d * q + m with q from zero up. Nibbles come in two
planes: the low halves of the 16 bytes are values 0..15, the high halves values 16..31. Encoding follows
ggml's float32 arithmetic step by step, so the bytes are the same.
"""

import numpy as np

from llamina.quant.bits import F32, U8, fields, half, half_bytes, pack, scaled


def decode_q4_0(blocks: U8) -> F32:
    """value = d * (q - 8).

    byte 0..1   d   f16
    byte 2..17  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    q = fields(blocks[..., 2:], 4, 16).view(np.int8) - np.int8(8)
    return scaled(q, half(blocks, 0))


def decode_q4_1(blocks: U8) -> F32:
    """value = d * q + m.

    byte 0..1   d   f16
    byte 2..3   m   f16
    byte 4..19  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    return scaled(fields(blocks[..., 4:], 4, 16), half(blocks, 0)) + half(blocks, 2)


def decode_q5_0(blocks: U8) -> F32:
    """value = d * (q - 16).

    byte 0..1   d   f16
    byte 2..5   qh  [4] fifth bits, one per value in order
    byte 6..21  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    return scaled(_five_bits(blocks[..., 2:]).view(np.int8) - np.int8(16), half(blocks, 0))


def decode_q5_1(blocks: U8) -> F32:
    """value = d * q + m.

    byte 0..1   d   f16
    byte 2..3   m   f16
    byte 4..7   qh  [4] fifth bits, one per value in order
    byte 8..23  qs  [16] nibbles: low = values 0..15, high = values 16..31
    """
    return scaled(_five_bits(blocks[..., 4:]), half(blocks, 0)) + half(blocks, 2)


def decode_q8_0(blocks: U8) -> F32:
    """value = d * q.

    byte 0..1   d   f16
    byte 2..33  qs  [32] int8
    """
    return scaled(blocks[..., 2:].view(np.int8), half(blocks, 0))


def decode_q8_1(blocks: U8) -> F32:
    """value = d * q; the sum is for dot products only.

    byte 0..1   d   f16
    byte 2..3   s   f16, d * sum(q)
    byte 4..35  qs  [32] int8
    """
    return scaled(blocks[..., 4:].view(np.int8), half(blocks, 0))


def encode_q4_0(values: F32) -> U8:
    d, q = _centred(values, 4)
    return np.concatenate([half_bytes(d), pack(q, 4, 16)], axis=-1)


def encode_q4_1(values: F32) -> U8:
    d, m, q = _ranged(values, 4)
    return np.concatenate([half_bytes(d), half_bytes(m), pack(q, 4, 16)], axis=-1)


def encode_q5_0(values: F32) -> U8:
    d, q = _centred(values, 5)
    return np.concatenate([half_bytes(d), pack(q >> np.uint8(4), 1, 1), pack(q & np.uint8(15), 4, 16)], axis=-1)


def encode_q5_1(values: F32) -> U8:
    d, m, q = _ranged(values, 5)
    return np.concatenate(
        [half_bytes(d), half_bytes(m), pack(q >> np.uint8(4), 1, 1), pack(q & np.uint8(15), 4, 16)], axis=-1
    )


def encode_q8_0(values: F32) -> U8:
    d = np.abs(values).max(axis=-1, keepdims=True) / np.float32(127)
    x = values * _inverse(d)
    # Round half away from zero, as C's roundf; adding 0.5 and truncating would round 0.49999997 up.
    whole = np.trunc(x)
    whole += np.copysign(np.abs(x - whole) >= 0.5, x)
    return np.concatenate([half_bytes(d), whole.astype(np.int8).view(np.uint8)], axis=-1)


def _five_bits(tail: U8) -> U8:
    """Return the 32 values of fifth bits followed by nibbles: uint8 [..., 20] → [..., 32]."""
    return fields(tail[..., 4:], 4, 16) | fields(tail[..., :4], 1, 1) << np.uint8(4)


def _centred(values: F32, bits: int) -> tuple[F32, U8]:
    """Return scale [..., 1] and quants of the `_0` formats: the largest magnitude maps to the lowest quant."""
    at = np.abs(values).argmax(axis=-1, keepdims=True)
    middle = 1 << (bits - 1)
    d = np.take_along_axis(values, at, axis=-1) / np.float32(-middle)
    x = values * _inverse(d) + np.float32(middle + 0.5)
    return d, np.minimum(x.astype(np.uint8), np.uint8(2 * middle - 1))


def _ranged(values: F32, bits: int) -> tuple[F32, F32, U8]:
    """Return scale [..., 1], minimum [..., 1] and quants of the `_1` formats: the block's range in equal steps."""
    top = (1 << bits) - 1
    m = values.min(axis=-1, keepdims=True)
    d = (values.max(axis=-1, keepdims=True) - m) / np.float32(top)
    x = (values - m) * _inverse(d) + np.float32(0.5)
    return d, m, np.minimum(x.astype(np.uint8), np.uint8(top))


def _inverse(d: F32) -> F32:
    """Return 1 / d, or 0 where d is zero or its inverse overflows (d is then zero in float16, too)."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


DECODERS = {
    "Q4_0": decode_q4_0,
    "Q4_1": decode_q4_1,
    "Q5_0": decode_q5_0,
    "Q5_1": decode_q5_1,
    "Q8_0": decode_q8_0,
    "Q8_1": decode_q8_1,
}

ENCODERS = {
    "Q4_0": encode_q4_0,
    "Q4_1": encode_q4_1,
    "Q5_0": encode_q5_0,
    "Q5_1": encode_q5_1,
    "Q8_0": encode_q8_0,
}
