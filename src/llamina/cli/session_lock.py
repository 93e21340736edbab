"""One run at a time for a session's file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from llamina.cli.terminal import note
from llamina.errors import SnapshotError


@contextmanager
def held(session: str | None, quiet: bool = False) -> Iterator[None]:
    """The session's file is this process's alone while the block runs; waits for another run that has it.

    The lock is a file beside it, `.NAME.lock`, which stays there: to delete it would let a third run in. Without a
    session nothing is locked. Raises SnapshotError if the folder cannot be written to.
    """
    if session is None:
        yield
        return
    from filelock import FileLock, Timeout

    place = Path(os.path.realpath(session))
    if not place.parent.is_dir():
        raise click.UsageError(f"the folder of --session {session} does not exist: create it")
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not quiet:
                note(f"waiting for another run that has {session}")
            lock.acquire()
    except OSError as error:
        raise SnapshotError(f"{session} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
