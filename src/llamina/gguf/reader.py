"""An open GGUF file: metadata as Python values, tensors as views into the memory-mapped file."""

import mmap
import os
import stat
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np

from llamina.errors import ModelFileError, ModelNotFound
from llamina.gguf import huge_pages
from llamina.gguf.header import Header, parse
from llamina.gguf.tensor import Tensor
from llamina.gguf.types import ByteOrder, Bytes, Kind, Value

Buffer: TypeAlias = bytes | bytearray | memoryview
_ALIGNMENT = 64  # of the first byte in memory: what compiled kernels may count on


@dataclass(frozen=True, slots=True, eq=False)
class GGUF:
    """The contents of a GGUF file.

    Metadata values are Python numbers and strings; an array of numbers is a NumPy array, any other a list.
    Text that is not UTF-8 has lone surrogates: encode it with "surrogateescape" to get its bytes.
    The file must not be truncated while it is open: reading a missing page kills the process (SIGBUS).
    """

    source: str
    version: int
    byteorder: ByteOrder
    alignment: int
    metadata: dict[str, Value] = field(repr=False)
    metadata_types: dict[str, Kind] = field(repr=False)
    tensors: dict[str, Tensor] = field(repr=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file and read its header; data is read when it is accessed. Raises ModelNotFound or ModelFileError."""
        source = os.fspath(path)
        file = _map(source)
        return cls.from_header(source, parse(source, file.data, len(file)), file)

    @classmethod
    def from_bytes(cls, data: Buffer, source: str = "bytes in memory") -> Self:
        """Read a file that is in memory; `source` is its name in messages. Raises ModelFileError.

        The bytes are copied unless they begin where a file's would, at a multiple of 64.
        """
        file = np.frombuffer(data, np.uint8)
        if len(file) == 0:
            raise ModelFileError(f"{source}: byte 0: there are no bytes: give those of a GGUF file")
        if file.ctypes.data % _ALIGNMENT:
            room = np.empty(len(file) + _ALIGNMENT, np.uint8)
            start = -room.ctypes.data % _ALIGNMENT
            copy = room[start : start + len(file)]
            copy[:] = file
            file = copy
        file.flags.writeable = False
        return cls.from_header(source, parse(source, file.data, len(file)), file)

    @classmethod
    def from_header(cls, source: str, header: Header, file: Bytes | None) -> Self:
        """Return the contents that a header describes, with their data if `file` is given."""
        tensors = {
            entry.name: Tensor(entry.name, entry.shape, entry.type, entry.offset, header.byteorder, file)
            for entry in header.entries
        }
        return cls(source, header.version, header.byteorder, header.alignment, header.metadata, header.kinds, tensors)

    def read_ahead(self) -> None:
        """Ask the operating system to prefetch all data (MADV_WILLNEED), where it can."""
        for mapping in self._mappings():
            if hasattr(mmap, "MADV_WILLNEED"):
                mapping.madvise(mmap.MADV_WILLNEED)

    def use_huge_pages(self, threads: int, progress: huge_pages.Progress | None = None) -> int:
        """Copy the data into huge pages, where the system has them; returns how many bytes were moved."""
        return sum(huge_pages.move(mapping, threads, progress) for mapping in self._mappings())

    def _mappings(self) -> list[mmap.mmap]:
        """The files that are mapped; none if the data was in memory."""
        files = {id(tensor.file): tensor.file for tensor in self.tensors.values() if tensor.file is not None}
        bases = [getattr(file.base, "obj", file.base) for file in files.values()]
        return [base for base in bases if isinstance(base, mmap.mmap)]

    def close(self) -> None:
        """Drop the tensors. The file is unmapped when the last view of its data is gone."""
        self.tensors.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _map(path: str) -> Bytes:
    """Return a file's bytes, memory-mapped and read-only. Raises ModelNotFound or ModelFileError."""
    try:
        # A pipe would block the open, a device has no length.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFileError(f"{path}: not a regular file: give the path of a GGUF file")
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFileError(f"{path}: byte 0: the file is empty: get it again")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: no such file: check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise ModelFileError(f"{path!r}: cannot be read: {error}") from error
