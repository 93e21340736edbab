"""Damaged and hostile picture files: only our errors, and memory stays bounded."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from damage import damaged, growth
from llamina.errors import InvalidPicture
from llamina.vision import Limits, read_picture

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
EACH = 60  # damaged files of a format
LIMITS = Limits(nbytes=1 << 20, pixels=1 << 20)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes = b"", *more: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


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


HOSTILE = {
    "a hundred thousand pixels each way": png(100_000, 100_000, zlib.compress(b"")),
    "the most pixels that a header can say": png(2**31 - 1, 2**31 - 1),
    "no pixels": png(0, 0),
    "a bomb of zeros": png(1024, 1024, zlib.compress(bytes(1 << 24), 9)),
    "a bomb of text": png(2, 2, b"", chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 27), 9))),
    "a bomb of a profile": png(2, 2, b"", chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(1 << 26), 9))),
    "many chunks": png(2, 2, b"", *[chunk(b"tEXt", b"a\0b")] * 20_000),
    "a chunk longer than the file": b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**31 - 1) + b"IHDR",
    "a wide bitmap": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0),
    "a bitmap that runs backwards": b"BM"
    + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, -5, -5, 1, 24, 0, 0, 0, 0, 0, 0),
    "a wide GIF": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\0;",
    "a JPEG without an end": b"\xff\xd8\xff\xe0" + bytes(1000),
    "a WebP that lies about its size": b"RIFF\xff\xff\xff\xffWEBPVP8L\xff\xff\xff\x7f\x2f" + b"\xff" * 64,
    "another kind of file": b"%PDF-1.7" + bytes(100),
    "PostScript, which Pillow would run": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "an icon": b"\0\0\1\0\1\0" + bytes(100),
}
READABLE = ("a bomb of zeros",)  # what is more than the header says is not unpacked


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
