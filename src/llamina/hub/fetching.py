"""Files from the web to their places: locked, fetched, verified, and only then given their name."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.assemble import checksum
from llamina.hub.catalogue import Progress
from llamina.hub.transfer import Remote, Transfer, check_room, journal_path, look
from llamina.hub.web import Web

LARGE = 256 << 20  # bytes whose verification takes long enough to be told of
TURN = 0.5  # seconds between two tries to get a lock
Note = Callable[[Path, Remote], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file at an address, where it is to go, and what is known of it beforehand."""

    url: str
    name: str  # for people
    target: Path
    lock: Path | None = None  # None: whoever asks has one
    size: int | None = None
    sha256: str | None = None
    variable: str = "LLAMINA_CACHE"  # that says in which folder the target is


def partial_path(target: Path) -> Path:
    """Where a file lies while it is fetched: hidden, and no `.gguf`."""
    return target.with_name(f".{target.name}.part")


def fetch(web: Web, wanted: Wanted, progress: Progress, force: bool = False, note: Note | None = None) -> None:
    """Put a file at its target, unless it came there in the meantime, or with `force` in any case.

    `note(path, remote)` is called when it is verified, right before it gets its name. `progress` may raise to end it;
    what has come is kept for the next time. Raises `DownloadError` if it cannot be fetched or is another file than is
    known.
    """
    wanted.target.parent.mkdir(parents=True, exist_ok=True)
    turn = locked(wanted.lock, lambda: progress(wanted.name, 0, 0)) if wanted.lock else nullcontext()
    with turn:
        if wanted.target.exists() and not force:  # somebody else has fetched it
            return
        remote = look(web, wanted.url)
        _check_same(wanted, remote)
        remote = replace(remote, size=wanted.size) if remote.size is None else remote
        while not _attempt(web, wanted, remote, progress, note):
            pass  # bytes that an earlier attempt had left were wrong, and are gone


def _attempt(web: Web, wanted: Wanted, remote: Remote, progress: Progress, note: Note | None) -> bool:
    """Fetch, verify and rename; False if bytes of an earlier attempt were wrong, which are gone then."""
    partial, size = partial_path(wanted.target), remote.size or 0
    sha256 = wanted.sha256 or remote.sha256
    transfer = Transfer(web, remote, partial, lambda done: progress(wanted.name, min(done, size), size), sha256)
    check_room(partial.parent, transfer.missing, wanted.variable)
    transfer.run()
    try:
        verify(partial, remote.size, sha256, wanted.name, progress)
    except DownloadError:
        partial.unlink()
        journal_path(partial).unlink(missing_ok=True)
        if transfer.resumed:
            return False
        raise
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    if note is not None:
        note(partial, remote)
    os.replace(partial, wanted.target)
    journal_path(partial).unlink(missing_ok=True)
    return True


def _check_same(wanted: Wanted, remote: Remote) -> None:
    """Raise DownloadError if the server has another file than is wanted."""
    size, digest = remote.size or wanted.size, remote.sha256 or wanted.sha256
    if wanted.size not in (None, size) or wanted.sha256 not in (None, digest):
        told = f", SHA-256 {digest[:12]}…" if digest else ""
        raise DownloadError(f"its {wanted.name} is another file ({size} bytes{told})")


def verify(path: Path, size: int | None, sha256: str | None, name: str, progress: Progress) -> None:
    """Raise DownloadError unless a file has this size and SHA-256, as far as these are known."""
    found = path.stat().st_size
    if size not in (None, found):
        raise DownloadError(f"{name} has {found} bytes instead of {size}: try again")
    if sha256 is None:
        return
    tell = None if found < LARGE else lambda done: progress(f"{name}: verifying", done, found)
    digest = checksum(path, tell)
    if digest != sha256:
        raise DownloadError(f"{name} has the SHA-256 {digest[:12]}… instead of {sha256[:12]}…: try again")


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of that path. `waiting` is called while another process, or thread, holds it; it may raise."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    while True:
        try:
            lock.acquire(timeout=TURN)
            break
        except Timeout:
            waiting()
    try:
        yield
    finally:
        lock.release()
