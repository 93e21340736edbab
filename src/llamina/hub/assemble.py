"""Parts → a model's file, which is accepted if its size and SHA-256 are those of the catalogue."""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.catalogue import Entry

CHUNK = 1 << 20


def assemble(parts: Sequence[Path], entry: Entry, target: Path, zip_offset: int | None = None) -> None:
    """Join the parts at `target`, or take the file out of the zip archive that they are a stretch of.

    The parts are gone afterwards. Raises `DownloadError` if the result is not the entry's file; then `target` is as it
    was, and parts may be left.
    """
    if len(parts) == 1 and zip_offset is None:
        whole = parts[0]
        size, digest = whole.stat().st_size, checksum(whole)
    else:
        whole = parts[0].with_name("joined")
        chunks = _read(parts) if zip_offset is None else _inflate(_read(parts), zip_offset)
        size, digest = _write(chunks, whole, entry.size)
    if (size, digest) != (entry.size, entry.sha256):
        whole.unlink()
        raise DownloadError(
            f"it gives other bytes ({size} of them, SHA-256 {digest[:12]}…) "
            f"than {entry.file} has ({entry.size}, {entry.sha256[:12]}…)"
        )
    os.replace(whole, target)


def checksum(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal; `progress` gets the bytes that have been read."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done)
    return digest.hexdigest()


def _read(parts: Sequence[Path]) -> Iterator[bytes]:
    """The contents of files one after the other. Each is deleted once read, so that there is room for the whole."""
    for part in parts:
        with part.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
        part.unlink()


def _write(chunks: Iterable[bytes], whole: Path, limit: int) -> tuple[int, str]:
    """Write until more than `limit` bytes have come: their number and SHA-256."""
    size, digest = 0, hashlib.sha256()
    try:
        with whole.open("wb") as out:
            for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    break
                digest.update(chunk)
                out.write(chunk)
    except BaseException:
        whole.unlink(missing_ok=True)
        raise
    return size, digest.hexdigest()


def _inflate(chunks: Iterable[bytes], offset: int) -> Iterator[bytes]:
    """The deflated member of a zip archive whose local header begins `offset` bytes into the chunks."""
    header = b""
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    started = False
    try:
        for chunk in chunks:
            if not started:
                header += chunk[offset:]
                offset = max(offset - len(chunk), 0)
                start = _data_start(header)
                if start is None:
                    continue
                started, chunk = True, header[start:]
            while chunk and not decoder.eof:
                yield decoder.decompress(chunk, CHUNK)
                chunk = decoder.unconsumed_tail
            if decoder.eof:
                return
    except zlib.error as error:
        raise DownloadError(f"the zip archive is damaged: {error}") from error


def _data_start(header: bytes) -> int | None:
    """Where a member's data begins: after 30 bytes, its name and its extra field; None while these have not all come.

    Bytes 0 to 4 are "PK\\3\\4", 8 to 10 the method (8 is deflate), 26 to 30 the two lengths.
    """
    if len(header) < 30:
        return None
    if header[:4] != b"PK\3\4" or header[8:10] != b"\x08\0":
        raise DownloadError("the zip archive has no deflated member at the place where it is expected")
    start = 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return start if len(header) >= start else None
