"""Damaged and hostile picture files: only our errors, and memory stays bounded."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from damage import damaged, growth
from hostile_pictures import HOSTILE, READABLE
from llamina.errors import InvalidPicture
from llamina.vision import Limits, read_picture

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
EACH = 60  # damaged files of a format
LIMITS = Limits(nbytes=1 << 20, pixels=1 << 20)


def whole(format: str) -> bytes:
    pixels = np.random.default_rng(5).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files(format: str) -> None:
    """A picture, or our error."""
    refused = 0
    for data in damaged(whole(format), EACH, range(8, 64)):
        try:
            assert read_picture(data, LIMITS).pixels.size <= 3 * LIMITS.pixels
        except InvalidPicture:
            refused += 1
    assert refused > EACH // 4


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str) -> None:
    if name in READABLE:
        assert read_picture(HOSTILE[name], LIMITS).pixels.size <= 3 * LIMITS.pixels
    else:
        with pytest.raises(InvalidPicture):
            read_picture(HOSTILE[name], LIMITS)


def test_memory_of_a_process(tmp_path: Path) -> None:
    bad = [data for format in FORMATS for data in damaged(whole(format), EACH, range(8, 64))]
    limits = f"nbytes={LIMITS.nbytes}, pixels={LIMITS.pixels}"
    grown = growth("vision", "picture", limits, map(whole, FORMATS), [*bad, *HOSTILE.values()], tmp_path)
    assert grown < 32 << 20
