"""Writes GGUF files: the header, then the tensors, with one (or a part of it) in memory at a time."""

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.errors import CapacityError, RequestError
from llamina.gguf.cursor import LAST_VERSION
from llamina.gguf.encode import Encoder, kind_of
from llamina.gguf.header import DEFAULT_ALIGNMENT, MAX_DIMENSIONS
from llamina.gguf.tensor import Tensor, swap_bytes
from llamina.gguf.types import ByteOrder, Bytes, Kind, TensorType, ValueType

Data: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]
# Called for a tensor's data when it is written: returns all of it, or parts in order, each of whole blocks.
Maker: TypeAlias = Callable[[], Data | Iterator[Data]]
# A tensor to write: one that was read, or name, shape (rows first), type, and data or a Maker.
Source: TypeAlias = Tensor | tuple[str, tuple[int, ...], TensorType, Data | Maker]
Progress: TypeAlias = Callable[[str, int, int], None]
COPIED = 1 << 24  # bytes of a tensor that are copied at a time


def write(
    path: str | os.PathLike[str],
    metadata: Mapping[str, object],
    tensors: Iterable[Source],
    *,
    metadata_types: Mapping[str, Kind] | None = None,
    alignment: int | None = None,
    version: int = LAST_VERSION,
    byteorder: ByteOrder = "little",
    progress: Progress | None = None,
) -> None:
    """Write a file, which appears at `path` only when it is complete.

    Raises RequestError for what GGUF cannot hold, CapacityError if the disk has no room for it.

    Keys that `metadata_types` leaves out get the kind of `kind_of`; its other keys are ignored. The alignment is the
    argument, else `general.alignment` in the metadata, else 32. Data is given in little-endian byte order. `progress`
    is told (name of the file, bytes of tensors done, bytes in all).
    """
    if not 1 <= version <= LAST_VERSION:
        raise RequestError(f"GGUF version {version}: write 1 to {LAST_VERSION}", "version")
    pending = [_Pending.of(source) for source in tensors]
    _check_names(pending)
    step = _alignment(metadata, alignment)
    pairs = dict(metadata)
    if step != DEFAULT_ALIGNMENT or "general.alignment" in pairs:
        pairs["general.alignment"] = step
    kinds = {**(metadata_types or {}), "general.alignment": Kind(ValueType.UINT32)}
    header = _header(Encoder(version, byteorder), version, pairs, kinds, pending, step)
    total, done = sum(tensor.nbytes for tensor in pending), 0
    _check_room(Path(path), len(header) + total)
    with replacing(Path(path)) as file:
        size = file.write(header)
        if pending:
            _pad(file, size, step)
        for tensor in pending:
            for part in tensor.parts():
                data = part if byteorder == "little" else swap_bytes(part, tensor.type, tensor.name)
                file.write(data.data)
                done += part.nbytes
                if progress is not None:
                    progress(Path(path).name, done, total)
            _pad(file, tensor.nbytes, step)


def check_output(path: Path, overwrite: bool, *sources: str | os.PathLike[str]) -> None:
    """Raise RequestError unless a new file may be written: in a folder, over none that exists unless `overwrite` is
    set, and never over one of the files that it is made of."""
    if path.exists() and any(os.path.exists(source) and path.samefile(source) for source in sources):
        raise RequestError(f"{path} would be replaced by itself: choose another name", "out")
    if path.exists() and not overwrite:
        raise RequestError(f"{path} exists: choose another name, or overwrite it (--force)", "out")
    if not path.parent.is_dir():
        raise RequestError(f"{path.parent} is not a folder: make it first, or choose another", "out")


def _check_room(path: Path, wanted: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < wanted:
        raise CapacityError(
            f"{path.name} takes {wanted / 1e9:.3g} GB and {path.parent} has {free / 1e9:.3g} GB free: make room, or "
            "choose another folder (LLAMINA_CACHE, if it is that of the cache)"
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    """A tensor to write, with its data or a Maker of it."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    data: Data | Maker

    @classmethod
    def of(cls, source: Source) -> "_Pending":
        if isinstance(source, Tensor):
            return cls(source.name, source.shape, source.type, lambda: _pieces(source))
        name, shape, kind, data = source
        shape = tuple(int(n) for n in shape)
        if len(shape) > MAX_DIMENSIONS or any(n < 1 for n in shape) or prod(shape[-1:]) % kind.block:
            raise RequestError(f"{name} has shape {shape}, which {kind.name} cannot hold in GGUF", "tensors")
        return cls(name, shape, kind, data)

    @property
    def nbytes(self) -> int:
        return self.type.size(self.shape)

    def parts(self) -> Iterator[Bytes]:
        """Yield the data, flat and little-endian. Raises RequestError unless it has exactly the right size."""
        data = self.data() if callable(self.data) else self.data
        written = 0
        for part in data if isinstance(data, Iterator) else (data,):
            if isinstance(part, np.ndarray):
                part = np.ascontiguousarray(part, part.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
            flat = np.frombuffer(part, np.uint8)
            written += flat.nbytes
            if written > self.nbytes or flat.nbytes % self.type.nbytes:
                break
            yield flat
        if written != self.nbytes:
            raise RequestError(
                f"{self.name}: {written} bytes, where {self.type.name} {self.shape} takes {self.nbytes}",
                "tensors",
            )


def _pieces(tensor: Tensor) -> Iterator[Bytes]:
    """Yield a tensor's bytes in pieces of whole blocks."""
    data, step = tensor.data, max(1, COPIED // tensor.type.nbytes) * tensor.type.nbytes
    yield from (data[at : at + step] for at in range(0, len(data), step))


def _check_names(pending: list[_Pending]) -> None:
    """Raise RequestError if two tensors have one name."""
    seen: set[str] = set()
    for tensor in pending:
        if tensor.name in seen:
            raise RequestError(f"two tensors are named {tensor.name}: rename one", "tensors")
        seen.add(tensor.name)


def _alignment(metadata: Mapping[str, object], requested: int | None) -> int:
    """Return the alignment. Raises RequestError unless it is a power of two that UINT32 holds."""
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT) if requested is None else requested
    if not isinstance(value, int) or value <= 0 or value.bit_count() != 1 or value > 1 << 31:
        raise RequestError(f"alignment {value!r} is not a power of two below 2^32", "alignment")
    return value


def _header(
    encoder: Encoder,
    version: int,
    metadata: Mapping[str, object],
    kinds: Mapping[str, Kind],
    pending: list[_Pending],
    alignment: int,
) -> bytes:
    """Return everything before the data, without padding."""
    parts = [b"GGUF", encoder.number(version), encoder.length(len(pending)), encoder.length(len(metadata))]
    for key, value in metadata.items():
        if not key:
            raise RequestError("a metadata key is empty: name it", "metadata")
        parts.append(encoder.pair(key, value, kinds.get(key) or kind_of(key, value)))
    offset = 0
    for tensor in pending:
        parts += [encoder.name(tensor.name), encoder.number(len(tensor.shape))]
        parts += [encoder.length(n) for n in reversed(tensor.shape)]
        parts += [encoder.number(tensor.type.id), encoder.long(offset)]
        offset += -(-tensor.nbytes // alignment) * alignment
    return b"".join(parts)


def _pad(file: BinaryIO, written: int, alignment: int) -> None:
    """Write zeros up to the alignment, after `written` bytes that began at a multiple of it."""
    file.write(bytes(-written % alignment))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, which replaces it at the end, or is deleted on an error.

    What writers that were killed have left of such files is deleted.
    """
    _sweep(path)
    part, file = _claimed(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _claimed(path: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file, locked, so that others can tell that it is being written."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(part, "xb")  # noqa: SIM115 (the caller closes it)
        locked = True
        try:
            with suppress(OSError):  # a file system without locks has no sweeping either
                locked = _lock(file)
        except BaseException:  # the program is being ended
            file.close()
            part.unlink(missing_ok=True)
            raise
        if locked and part.exists():  # else another writer came in between, and took it for one that was left
            return part, file
        file.close()


def _sweep(path: Path) -> None:
    """Delete temporary files of `path` that nobody writes any more."""
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError):
            if sys.platform == "win32":
                left.unlink()  # fails while it is open anywhere
                continue
            with open(left, "rb+") as file:
                if _lock(file):
                    left.unlink()


def _lock(file: BinaryIO) -> bool:
    """Lock a file as long as it is open; False if another has locked it. Raises OSError where there are no locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
