"""Sound files that are damaged, or made to do harm."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from damage import damaged
from golden import sound_models

FORMATS = ("wav", "mp3", "flac")


def whole(format: str, golden: Callable[[str], Path]) -> bytes:
    if format != "wav":
        return golden(f"sounds/tone.{format}").read_bytes()
    return sound_models.wav(np.random.default_rng(4).integers(-9000, 9000, (6000, 2), dtype=np.int16), 22050)


def broken(format: str, count: int, golden: Callable[[str], Path]) -> Iterator[bytes]:
    """So many damaged files of a format."""
    return damaged(whole(format, golden), count, range(4, 44), parts=50)


def wav(
    rate: int = 16000, channels: int = 1, bits: int = 16, kind: int = 1, size: int = 0xFFFFFFFF, more: bytes = b""
) -> bytes:
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", kind, channels, rate, (rate * block) & 0xFFFFFFFF, block & 0xFFFF, bits)
    return b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0" + head + b"data" + struct.pack("<I", size) + more


def flac(rate: int, channels: int, samples: int, more: bytes = b"") -> bytes:
    packed = (rate << 44) | ((channels - 1) << 41) | (15 << 36) | samples
    return (
        b"fLaC\x80\0\0\x22" + struct.pack(">HH", 4096, 4096) + bytes(6) + packed.to_bytes(8, "big") + bytes(16) + more
    )


HOSTILE = {
    "no rate": wav(rate=0, more=bytes(100)),
    "the highest rate": wav(rate=2**32 - 1, more=bytes(100)),
    "one sample a second": wav(rate=1, more=bytes(1 << 16)),
    "no channels": wav(channels=0, more=bytes(100)),
    "the most channels": wav(channels=65535, more=bytes(1 << 18)),
    "samples of no bits": wav(bits=0, more=bytes(100)),
    "samples of 65535 bits": wav(bits=65535, more=bytes(100)),
    "an unknown encoding": wav(kind=0x4242, more=bytes(100)),
    "no samples": wav(size=0),
    "more samples than there are": wav(more=b""),
    "a long silence": wav(rate=4000, more=bytes(1 << 19)),
    "a header alone": b"RIFF\xff\xff\xff\xffWAVE",
    "a chunk longer than the file": b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff" + bytes(20),
    "many chunks": b"RIFF\xff\xff\xff\xffWAVE" + b"LIST\0\0\0\0" * 20_000,
    "a FLAC of no rate": flac(0, 1, 100),
    "a FLAC of 36 bits of samples": flac(16000, 1, 2**36 - 1),
    "a FLAC of noise": flac(16000, 2, 4096, b"\xff\xf8" + bytes(range(256)) * 16),
    "a FLAC of pictures": b"fLaC\x06\xff\xff\xff" + bytes(100),
    "a tag longer than the file": b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(100),
    "a tag of all that there is": b"ID3\x04\0\0\0\0\x7f\x7f" + bytes(16383),
    "frames without data": b"\xff\xfb\x90\x64" * 5000,
    "seventeen minutes of silence in a megabyte": (b"\xff\xe3\x18\xc4" + bytes(68)) * 14_000,
    "a sync word": b"\xff\xe0",
    "noise like MP3": b"\xff\xfb\x90\x64" + np.random.default_rng(8).bytes(1 << 16),
    "floats that are no numbers": wav(bits=32, kind=3, more=b"\xff" * 4000),
    "another kind of file": b"%PDF-1.7" + bytes(100),
}
READABLE = ("frames without data", "noise like MP3", "a long silence")  # or refused, as the decoder finds it
