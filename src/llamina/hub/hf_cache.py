"""The cache of Hugging Face's own library, shared with other programs: which GGUF files are in it, and their places.

A repository is a folder: `blobs` has contents by their SHA-256, `snapshots/COMMIT` links to them by file names, and
`refs` has the commit of a branch.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamina.hub.shards import first_shards, is_complete, is_encoder, stem

_QUANT = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d|TQ\d|MXFP\d|NVFP\d|BF16|F16|F32)[A-Z0-9_]*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cached:
    """A GGUF model in the cache."""

    name: str  # user/repo:quant
    path: Path
    repo: str


def quant_of(file: str) -> str:
    """The quantization a file's name ends with, else the whole stem."""
    match = _QUANT.search(stem(file))
    return match[1].upper() if match else stem(file)


def cache_folder() -> Path:
    """Where Hugging Face's own library keeps what it downloads."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    return cache_folder() / f"models--{repo.replace('/', '--')}"


def lock_path(repo: str, blob: str) -> Path:
    """The lock that the library holds, too, while it writes a blob."""
    return cache_folder() / ".locks" / f"models--{repo.replace('/', '--')}" / f"{blob}.lock"


def link(blob: Path, place: Path) -> None:
    """Have a snapshot's file at `place` that is the blob; where there are no symbolic links, the blob moves there."""
    if place.exists() and place.resolve() == blob.resolve():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.link")
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(os.path.relpath(blob, place.parent))
    except OSError:  # Windows, for users without that right
        os.replace(blob, place)
    else:
        os.replace(temporary, place)


def note_commit(repo: str, revision: str, commit: str) -> None:
    """Note which commit a branch or tag is at, for programs that have no network."""
    if revision != commit:
        ref = repo_folder(repo) / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)


def cached(revision: str | None = None) -> Iterator[Cached]:
    """GGUF models in the cache, each in its newest snapshot only; or those of a revision. Incomplete ones are none."""
    for folder in sorted(cache_folder().glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        seen: set[str] = set()
        for snapshot in _snapshots(folder, revision):
            for path in first_shards(snapshot.rglob("*.gguf")):
                if path.name not in seen and is_complete(path) and not is_encoder(path.name):
                    seen.add(path.name)
                    yield Cached(f"{repo}:{quant_of(path.name)}", path, repo)


def _snapshots(folder: Path, revision: str | None) -> list[Path]:
    """The newest first."""
    found = sorted((folder / "snapshots").glob("*"), key=lambda path: -path.stat().st_mtime)
    if revision is None:
        return found
    ref = folder / "refs" / revision
    commit = ref.read_text().strip() if ref.is_file() else revision
    return [snapshot for snapshot in found if snapshot.name == commit]


def folders_of(model: Path) -> list[Path]:
    """Where files that belong to a model may be: its own folder, and in the cache those up to the repository's root."""
    above = list(model.parents)
    roots = [number for number, folder in enumerate(above) if folder.parent.name == "snapshots"]
    return above[: roots[0] + 1] if roots else above[:1]


def delete(files: Sequence[Path]) -> None:
    """Remove files from all snapshots, with what they point to; with the last model, the repository's folder."""
    folder = next(parent for parent in files[0].parents if parent.name.startswith("models--"))
    names = {path.name for path in files}
    links = [path for path in (folder / "snapshots").rglob("*") if path.is_file()]
    if not any(path.suffix == ".gguf" and not is_encoder(path.name) for path in links if path.name not in names):
        names |= {path.name for path in links if is_encoder(path.name)}  # nothing is left that they could belong to
    blobs = {path.resolve() for path in links if path.name in names}
    kept = {path.resolve() for path in links if path.name not in names}
    for path in links:
        if path.name in names:
            path.unlink()
    for blob in blobs - kept:  # files of equal content share one
        blob.unlink(missing_ok=True)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
