"""Unpacking blocks: the bit layouts that formats are made of."""

import numpy as np
from numpy.typing import NDArray

from llamina.errors import RequestError

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


def fields(data: U8, width: int, group: int) -> U8:
    """Split bytes into fields of `width` bits, plane by plane within each run of `group` bytes.

    Plane p of a group is bits [p * width, (p + 1) * width) of each of its bytes in turn, so a group of 1
    yields the fields of a byte from the low end up. uint8 [..., n] → [..., n * 8 / width].
    """
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    planes = data.reshape(*data.shape[:-1], -1, 1, group) >> shifts  # [..., groups, planes, group]
    planes &= np.uint8((1 << width) - 1)
    return planes.reshape(*data.shape[:-1], -1)


def pack(values: U8, width: int, group: int) -> U8:
    """Invert `fields`: uint8 [..., n] of values below 2 ** width → [..., n * width / 8]."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    planes = values.reshape(*values.shape[:-1], -1, 8 // width, group) << shifts
    packed: U8 = np.bitwise_or.reduce(planes, axis=-2)
    return packed.reshape(*values.shape[:-1], -1)


def half(blocks: U8, at: int) -> F32:
    """Return the float16 at byte `at` of each block: float32 [..., 1]."""
    return blocks[..., at : at + 2].view("<f2").astype(np.float32)


def half_bytes(scales: F32) -> U8:
    """Round scales or minima to float16, to nearest, ties to even: float32 [..., 1] → uint8 [..., 2].

    Raises RequestError for NaN, infinity and overflow, which would make the whole block useless.
    """
    halves = scales.astype("<f2")
    if not np.isfinite(halves).all():
        raise RequestError("values contain NaN, infinity or a number too large for a block: use F32 or BF16", "values")
    return halves.view(np.uint8)


def scaled(values: NDArray[np.integer], scales: F32) -> F32:
    """Multiply runs of equal length by their scales: [..., n], [..., runs] → float32 [..., n]."""
    runs = values.reshape(*scales.shape, -1)
    product: F32 = np.multiply(runs, scales[..., None], dtype=np.float32)
    return product.reshape(values.shape)
