"""Contents of files on disk, under names that the server makes: written whole and synced before anybody sees them."""

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

BUFFER = 1 << 20  # bytes that are gathered before a thread writes them
PART = ".part"  # what a file is called until it is whole


class Contents:
    """A folder of files by id. An id is always one that the server made: what clients call a file is never a path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, id: str) -> Path:
        return self.folder / id

    def write(self, id: str) -> "Writing":
        """A file to be written; it is there when `finish` has returned, and not at all if it is left before."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Writing(self.path(id))

    async def delete(self, id: str) -> None:
        await asyncio.to_thread(self.path(id).unlink, missing_ok=True)

    def names_before(self, time: float) -> list[str]:
        """What was last written before a time, unfinished files too."""
        if not self.folder.is_dir():
            return []
        with os.scandir(self.folder) as entries:
            return [entry.name for entry in entries if entry.stat().st_mtime < time]


class Writing:
    """A file under a temporary name. `with` removes it unless it was finished."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(path.name + PART)
        self._file: BinaryIO | None = open(self._part, "wb")  # noqa: SIM115, closed by `finish` or `__exit__`
        self._buffer = bytearray()
        self.size = 0

    async def write(self, data: bytes) -> None:
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= BUFFER:
            await self._flush()

    async def _flush(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        assert self._file is not None
        await asyncio.to_thread(self._file.write, data)

    async def finish(self) -> None:
        """Sync the contents, then give the file its name, and sync that."""
        await self._flush()
        await asyncio.to_thread(self._rename)

    def _rename(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        os.replace(self._part, self._path)
        if hasattr(os, "O_DIRECTORY"):  # Windows has no folders that can be synced
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._part.unlink(missing_ok=True)
