"""Resizing as encoders were trained with: Pillow's filters, padding or stretching, and sizes in whole patches."""

import math
from typing import Literal

import numpy as np
from PIL import Image

from llamina.errors import InvalidPicture
from llamina.vision.picture import LIMITS, Pixels

Filter = Literal["bilinear", "bicubic", "lanczos"]
Size = tuple[int, int]  # width, height
Colour = tuple[int, int, int]
CLIP_GREY: Colour = (122, 116, 104)  # the mean of what CLIP has seen
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def stretch(pixels: Pixels, size: Size, filter: Filter) -> Pixels:
    """Exactly that size, whatever becomes of the proportions: rows first, then columns (Pillow may do otherwise)."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    _check(size)
    wide = Image.fromarray(pixels).resize((size[0], pixels.shape[0]), FILTERS[filter])
    return np.asarray(wide.resize(size, FILTERS[filter]))


def fit(pixels: Pixels, size: Size, filter: Filter, colour: Colour = (0, 0, 0)) -> Pixels:
    """As large as it can be within that size, in the middle of a canvas of one colour."""
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    _check(size)
    scale = min(np.float32(size[0]) / np.float32(pixels.shape[1]), np.float32(size[1]) / np.float32(pixels.shape[0]))
    width = min(math.ceil(np.float32(pixels.shape[1]) * scale), size[0])
    height = min(math.ceil(np.float32(pixels.shape[0]) * scale), size[1])
    canvas = np.empty((size[1], size[0], 3), np.uint8)
    canvas[:] = colour
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    canvas[top : top + height, left : left + width] = stretch(pixels, (width, height), filter)
    return canvas


def whole_size(size: Size, step: int, least: int, most: int) -> Size:
    """The nearest size in multiples of `step` with about the same proportions, from `least` to `most` pixels.

    Raises InvalidPicture for a picture that is so narrow that it cannot be.
    """
    width, height = (np.float32(n) for n in size)
    found = [max(step, _rounded(n, step)) for n in (width, height)]
    if found[0] * found[1] > most:
        shrink = np.sqrt(height * width / np.float32(most))
        found = [max(step, math.floor(n / shrink / np.float32(step)) * step) for n in (width, height)]
        if found[0] * found[1] > most:
            raise InvalidPicture(f"the picture has {size[0]} x {size[1]} pixels, which is too narrow: cut the picture")
    elif found[0] * found[1] < least:
        grow = np.sqrt(np.float32(least) / (height * width))
        found = [math.ceil(n * grow / np.float32(step)) * step for n in (width, height)]
    return found[0], found[1]


def _check(size: Size) -> None:
    """Raise InvalidPicture for what would be larger than a picture may be: long and narrow ones grow so."""
    if size[0] * size[1] > LIMITS.pixels:
        message = (
            f"the encoder would see {size[0]} x {size[1]} pixels, and {LIMITS.pixels} are the most: cut the picture"
        )
        raise InvalidPicture(message)


def _rounded(n: np.float32, step: int) -> int:
    """To the nearest multiple, halves up."""
    return math.floor(float(n / np.float32(step)) + 0.5) * step
