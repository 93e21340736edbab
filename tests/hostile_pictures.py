"""Picture files that are made to do harm."""

import struct
import zlib


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes = b"", *more: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


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
