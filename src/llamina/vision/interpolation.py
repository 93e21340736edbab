"""Learned positions for grids of other sizes than the one they were learned on."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Interpolation = Literal["corners", "antialiased", "bicubic"]
Array = Any  # an ndarray; NumPy's stubs lose the type in arithmetic
CUBIC = -0.75  # how much a cubic swings over


def stretched(table: Array, height: int, width: int, kind: Interpolation) -> npt.NDArray[np.float32]:
    """A table [rows, columns, n] as [height, width, n].

    `corners` stay where they are and all else is between its two nearest; others are pixels with centres: a mean of all
    that one covers (`antialiased`), or a cubic through the four nearest.
    """
    weights = {"corners": corners, "antialiased": antialiased, "bicubic": bicubic}[kind]
    rows, columns = weights(table.shape[0], height), weights(table.shape[1], width)
    found: npt.NDArray[np.float32] = np.einsum("hr,wc,rcn->hwn", rows, columns, table, optimize=True).astype(np.float32)
    return found


def corners(size: int, n: int) -> Array:
    """What each of `size` weighs in each of n, [n, size]."""
    at = np.linspace(0, size - 1, n, dtype=np.float32) if n > 1 else np.zeros(1, np.float32)
    return np.maximum(0, 1 - np.abs(np.arange(size, dtype=np.float32) - at[:, None]))


def antialiased(size: int, n: int) -> Array:
    """The same, by a triangle as wide as what one of n covers, of two at the least."""
    distance = np.arange(size) + np.float32(0.5) - _centres(size, n)[:, None]
    weights = np.maximum(0, 1 - np.abs(distance) / np.float32(max(1.0, size / n)))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def bicubic(size: int, n: int) -> Array:
    """The same; what lies outside is as the border."""
    at = _centres(size, n) - np.float32(0.5)
    first = np.floor(at).astype(int)
    weights = np.zeros((n, size), np.float32)
    for place in range(-1, 3):
        x = np.abs(at - (first + place))
        near = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
        far = ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
        np.add.at(weights, (np.arange(n), np.clip(first + place, 0, size - 1)), np.where(x <= 1, near, far))
    return weights


def _centres(size: int, n: int) -> Array:
    """Where the middles of n are among `size`."""
    return (np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(size / n)
