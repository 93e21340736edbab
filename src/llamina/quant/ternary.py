"""Formats of one, two or log2(3) bits with a single scale per block: TQ1_0, TQ2_0, Q1_0, Q2_0."""

import numpy as np
from numpy.typing import NDArray

from llamina.quant.bits import F32, U8, fields, half, scaled


def decode_tq1_0(blocks: U8) -> F32:
    """value = d * (trit - 1); a byte holds five trits (see `_trits`).

    byte 0..31   qs  [32] values 0..159, trit 0 of each byte in turn, then trit 1, ...
    byte 32..47  qs  [16] values 160..239, likewise
    byte 48..51  qh  [4] values 240..255, four trits each, likewise
    byte 52..53  d   f16
    """
    runs = [_trits(blocks[..., :32], 5), _trits(blocks[..., 32:48], 5), _trits(blocks[..., 48:52], 4)]
    return scaled(np.concatenate(runs, axis=-1) - np.int8(1), half(blocks, 52))


def decode_tq2_0(blocks: U8) -> F32:
    """value = d * (q - 1).

    byte 0..63   qs  [64] 2-bit planes over 32 bytes, twice
    byte 64..65  d   f16
    """
    return scaled(fields(blocks[..., :64], 2, 32).view(np.int8) - np.int8(1), half(blocks, 64))


def decode_q1_0(blocks: U8) -> F32:
    """value = d where the bit is set, else -d.

    byte 0..1   d   f16
    byte 2..17  qs  [16] bits, one per value in order
    """
    bits = fields(blocks[..., 2:], 1, 1).view(np.int8)
    return scaled(2 * bits - np.int8(1), half(blocks, 0))


def decode_q2_0(blocks: U8) -> F32:
    """value = d * (q - 1).

    byte 0..1   d   f16
    byte 2..17  qs  [16] 2-bit fields, one per value in order
    """
    return scaled(fields(blocks[..., 2:], 2, 1).view(np.int8) - np.int8(1), half(blocks, 0))


def _trits(data: U8, count: int) -> NDArray[np.int8]:
    """Return the first `count` trits of bytes, plane by plane: uint8 [..., n] → int8 [..., count * n].

    A byte b stands for the fraction b / 256 = 0.t0 t1 t2 t3 t4 in base 3 (rounded up). Multiplying by
    3 ** i and dropping the whole part brings trit i to the front; one more 3 takes it past the point.
    """
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    fraction = data[..., None, :] * powers  # wraps modulo 256
    trits = (fraction.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).astype(np.int8)
    return trits.reshape(*data.shape[:-1], -1)


DECODERS = {"TQ1_0": decode_tq1_0, "TQ2_0": decode_tq2_0, "Q1_0": decode_q1_0, "Q2_0": decode_q2_0}
