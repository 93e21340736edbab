"""Which process works for what is kept: one that starts takes over from those that are gone, and only those.

A process holds a lock on a file of its own as long as it lives; the system frees it however the process ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from llamina.server.ids import new_id

PATIENCE = 60.0  # seconds that one waits for others which start at the same time


class Instance:
    """This process, among those that share a data folder."""

    def __init__(self, folder: Path) -> None:
        self.id = new_id("server_")
        self._folder = folder / "servers"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = FileLock(self._folder / self.id)
        with self.taking_over():
            self._lock.acquire()

    def alive(self, id: str) -> bool:
        """Whether the process of that id runs. What one that is gone has left is removed."""
        path = self._folder / id
        if not id or id == self.id or not path.exists():
            return id == self.id
        try:
            with FileLock(path, timeout=0):
                path.unlink(missing_ok=True)
        except Timeout:
            return True
        return False

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """One process at a time looks for what others have left."""
        with FileLock(self._folder / "taking-over", timeout=PATIENCE):
            for path in self._folder.glob("server_*"):
                self.alive(path.name)
            yield

    def close(self) -> None:
        self._lock.release()
        (self._folder / self.id).unlink(missing_ok=True)
