"""What nothing needs: partial files, shards without the others, blobs without links; and what can be made again."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llamina.hub.hf_cache import cache_folder
from llamina.hub.shards import is_complete, shard_names
from llamina.hub.store import folder
from llamina.places import cache_dir

PARTIAL = (".part", ".journal", ".new", ".incomplete")  # endings; the last is that of Hugging Face's own library
MADE = ("quantized", "shapes")  # folders of the cache: copies that were made on load, random weights of `bench`


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files and folders that nothing needs."""

    kind: Literal["partial", "blob", "kernels", "copy"]
    path: Path  # for people: the file, or the folder that the files are in
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """In bytes; a link counts nothing."""
        found = (path for file in self.files for path in ([file] if not file.is_dir() else file.rglob("*")))
        return sum(path.stat().st_size for path in found if path.is_file() and not path.is_symlink())

    def delete(self) -> None:
        for path in self.files:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def leftovers(copies: bool = False) -> list[Leftover]:
    """All of them, but for what is being downloaded or written; with `copies`, also what is made again when needed."""
    repositories = sorted(cache_folder().glob("models--*--*"))
    found = [*_in_store(), *(left for repository in repositories for left in _in_repository(repository))]
    return found + [left for name in MADE for left in _made(cache_dir() / name, copies)]


def _in_store() -> Iterator[Leftover]:
    """Partial files of addresses, folders of parts of the catalogue's models, and shards without the others."""
    if not folder().is_dir():
        return
    hidden = [path for path in sorted(folder().glob(".*")) if path.is_dir() or path.name.endswith(PARTIAL)]
    for path in [*hidden, *_lonely_shards(folder().glob("*.gguf"))]:
        name = path.name.removeprefix(".")
        while name.endswith(PARTIAL):
            name = name.rpartition(".")[0]
        if not any(in_use(folder() / f".{shard}.lock") for shard in shard_names(name)):
            yield Leftover("partial", path, (path,))


def _in_repository(repository: Path) -> Iterator[Leftover]:
    """Nothing, while any file of the repository is being fetched."""
    if any(in_use(lock) for lock in (cache_folder() / ".locks" / repository.name).glob("*.lock")):
        return
    links = [path for path in (repository / "snapshots").rglob("*") if path.is_file()]
    lonely = set(_lonely_shards(links))
    needed = {path.resolve() for path in links if path not in lonely}
    for path in sorted(lonely):
        blob = path.resolve()
        yield Leftover("partial", path, (path, blob) if blob not in needed else (path,))
    gone = {path.resolve() for path in lonely}
    for blob in sorted(path for path in (repository / "blobs").glob("*") if path.is_file()):
        if blob.name.endswith(PARTIAL):
            yield Leftover("partial", blob, (blob,))
        elif blob.resolve() not in needed | gone:
            yield Leftover("blob", blob, (blob,))


def _made(place: Path, copies: bool) -> Iterator[Leftover]:
    """What was made of models: files that were not completed, and with `copies` the others."""
    if any(in_use(lock) for lock in place.glob(".*lock")):
        return
    for path in sorted(place.glob(".*.part")):
        yield Leftover("partial", path, (path,))
    for path in sorted(place.glob("*.gguf")) if copies else ():
        yield Leftover("copy", path, (path,))


def _lonely_shards(paths: Iterable[Path]) -> list[Path]:
    """Shards of models that lack others."""
    return sorted(path for path in paths if path.suffix == ".gguf" and not is_complete(path))


def in_use(lock: Path) -> bool:
    """Whether a process holds the lock of that path."""
    from filelock import FileLock, Timeout

    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
