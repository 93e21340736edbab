"""Pictures larger than an encoder's own size, cut into tiles of it."""

import numpy as np

from llamina.vision.picture import Pixels
from llamina.vision.resize import Size


def best_resolution(size: Size, candidates: list[Size]) -> Size:
    """The candidate that keeps most of the picture's pixels, and of those the one with the least left empty."""
    best, most, wasted = candidates[0], -1, 0
    for width, height in candidates:
        scale = min(np.float32(width) / np.float32(size[0]), np.float32(height) / np.float32(size[1]))
        kept = min(int(np.float32(size[0]) * scale) * int(np.float32(size[1]) * scale), size[0] * size[1])
        left = width * height - kept
        if kept > most or (kept == most and left < wasted):
            best, most, wasted = (width, height), kept, left
    return best


def cut(pixels: Pixels, side: int) -> list[list[Pixels]]:
    """Square tiles by rows; the picture's sides are multiples of theirs."""
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    return [[pixels[y * side : (y + 1) * side, x * side : (x + 1) * side] for x in range(columns)] for y in range(rows)]
