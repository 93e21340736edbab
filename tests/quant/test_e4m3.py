"""8-bit floats."""

import numpy as np

from llamina.quant.e4m3 import LARGEST, decode_e4m3, encode_e4m3


def test_every_byte_comes_back() -> None:
    """Both zeros have a byte of their own; NaN is one of two."""
    every = np.arange(256, dtype=np.uint8)
    found = encode_e4m3(decode_e4m3(every))
    assert np.array_equal(found & 0x7F, every & 0x7F)
    assert np.array_equal(found[decode_e4m3(every) == decode_e4m3(every)] >> 7, np.arange(254) >= 127)


def test_what_is_between_goes_to_the_nearest() -> None:
    """Ties to even, what is too large to the largest."""
    values = np.array(
        [1.0, 1.0625, 1.07, 1.1875, 0.0009, 0.001, 2**-10, 3 * 2**-10, 463.9, 1e9, np.inf, -1e9], np.float32
    )
    want = [1.0, 1.0, 1.125, 1.25, 0.0, 2**-9, 0.0, 2**-8, LARGEST, LARGEST, LARGEST, -LARGEST]
    assert decode_e4m3(encode_e4m3(values)).tolist() == want
    assert np.isnan(decode_e4m3(encode_e4m3(np.array([np.nan, -np.nan], np.float32)))).all()
