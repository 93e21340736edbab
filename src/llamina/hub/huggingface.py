"""GGUF files on the Hugging Face Hub: `user/repo[:quant]` → files in its own cache, shared with other programs."""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from llamina.errors import DownloadError, LlaminaError, ModelNotFound, RequestError
from llamina.hub.catalogue import Entry, HubFile, Progress
from llamina.hub.shards import first_shards, is_first, shard_names, stem

PREFERRED = "Q4_K_M"
TIMEOUT = 15.0  # seconds for the list of files, or what is known of one
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_QUANT = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d|TQ\d|MXFP\d|NVFP\d|BF16|F16|F32)[A-Z0-9_]*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cached:
    """A GGUF file in the cache."""

    name: str  # user/repo:quant
    path: Path
    repo: str


def is_name(name: str) -> bool:
    """Whether it is spelt like `user/repo[:quant]`, and not like the path of a file."""
    return _NAME.fullmatch(name.partition(":")[0]) is not None and not name.lower().endswith(".gguf")


def parse(name: str) -> tuple[str, str | None]:
    """The repository and the quantization, if any, of `user/repo[:quant]`; raises `RequestError` if it is none."""
    repo, _, quant = name.partition(":")
    if not _NAME.fullmatch(repo):
        raise RequestError(f"{name!r} is not a repository: write user/repo or user/repo:quant", "model")
    return repo, quant or None


def quant_of(file: str) -> str:
    """The quantization a file's name ends with, else the whole stem."""
    match = _QUANT.search(stem(file))
    return match[1].upper() if match else stem(file)


def choose(files: Sequence[str], quant: str | None, repo: str) -> str:
    """The file that is meant: of that quantization; without one, Q4_K_M, else the first. Raises `ModelNotFound`."""
    models = sorted(f for f in files if f.lower().endswith(".gguf") and is_first(f) and "mmproj" not in f.lower())
    if not models:
        raise ModelNotFound(f"{repo} has no GGUF files: look for a repository whose name ends in -GGUF")
    wanted = quant or PREFERRED
    for matches in (_is_called, _has_quant):
        if found := [file for file in models if matches(file, wanted)]:
            return found[0]
    if quant is None:
        return models[0]
    there = ", ".join(dict.fromkeys(quant_of(file) for file in models))
    raise ModelNotFound(f"{repo} has no {quant}: it has {there}")


def _is_called(file: str, wanted: str) -> bool:
    return wanted.lower() in (file.lower(), PurePath(file).name.lower(), stem(file).lower())


def _has_quant(file: str, wanted: str) -> bool:
    """The quant is in the file's name, or is the folder it lies in."""
    words = f"/{PurePath(file).parent}/{stem(file)}".lower()
    return re.search(rf"[-._/]{re.escape(wanted.lower())}(?:[-./]|$)", words) is not None


def pull(name: str, progress: Progress) -> Path:
    """Download what is not in the cache yet (a broken transfer is resumed), and return the first file.

    Raises `ModelNotFound`, `DownloadError`, or `RequestError` if the name is no repository's.
    """
    repo, quant = parse(name)
    try:
        files = shard_names(choose(_files(repo), quant, repo))
    except DownloadError:
        if (kept := _kept(repo, quant)) is not None:
            return kept
        raise
    paths = [_download(repo, file, progress) for file in files]
    return paths[0]


def _kept(repo: str, quant: str | None) -> Path | None:
    """The file that is meant among those in the cache, if the repository cannot be asked; None if there are none."""
    have = {entry.path.name: entry.path for entry in cached() if entry.repo.lower() == repo.lower()}
    return have[choose(list(have), quant, repo)] if have else None


def _files(repo: str) -> list[str]:
    from huggingface_hub import HfApi

    try:
        siblings = HfApi(library_name="llamina").model_info(repo, timeout=TIMEOUT).siblings
        return [file.rfilename for file in siblings or ()]
    except Exception as error:
        raise _failure(error, repo) from error


def _download(repo: str, file: str, progress: Progress) -> Path:
    from huggingface_hub import hf_hub_download

    progress(file, 0, 0)  # of unknown size: the library draws its own bar
    try:
        return Path(hf_hub_download(repo, file, library_name="llamina"))
    except Exception as error:
        raise _failure(error, repo) from error


def fetch_file(source: HubFile, entry: Entry, folder: Path, progress: Progress) -> Path:
    """Download a file into `folder`, or go on with what an earlier attempt has left there, and return its path.

    What the Hub says of the file is compared first, so that another one is not fetched in vain. Raises `DownloadError`
    or `ModelNotFound`.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    try:
        known = get_hf_file_metadata(hf_hub_url(source.repo, source.file), timeout=TIMEOUT, library_name="llamina")
        digest = known.etag if known.etag and len(known.etag) == len(entry.sha256) else entry.sha256
        if known.size not in (None, entry.size) or digest != entry.sha256:
            raise DownloadError(f"its {source.file} is another file ({known.size} bytes, SHA-256 {digest[:12]}…)")
        progress(entry.name, 0, 0)  # of unknown size: the library draws its own bar
        return Path(hf_hub_download(source.repo, source.file, local_dir=folder, library_name="llamina"))
    except LlaminaError:
        raise
    except Exception as error:
        raise _failure(error, source.repo) from error


def _failure(error: Exception, repo: str) -> LlaminaError:
    """Our exception for one of the library, or of the HTTP client under it."""
    from huggingface_hub import errors

    said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(f"{repo} is gated: accept its terms on its page, then log in with `hf auth login`")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(f"{repo} is not on Hugging Face, or is private: check the name, or set HF_TOKEN")
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return ModelNotFound(f"{repo}: {said}")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DownloadError(f"{repo} is not in the cache, and HF_HUB_OFFLINE is set: unset it to download")
    return DownloadError(f"{repo} could not be fetched: {said}: check the network and try again")


# ---- the cache ---------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where Hugging Face's own library keeps what it downloads."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached() -> Iterator[Cached]:
    """GGUF models in the cache, each in its newest snapshot only."""
    for folder in sorted(cache_folder().glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        seen: set[str] = set()
        for snapshot in sorted((folder / "snapshots").glob("*"), key=lambda path: -path.stat().st_mtime):
            for path in first_shards(snapshot.rglob("*.gguf")):
                if path.name not in seen and path.exists() and "mmproj" not in path.name.lower():
                    seen.add(path.name)
                    yield Cached(f"{repo}:{quant_of(path.name)}", path, repo)


def delete(files: Sequence[Path]) -> None:
    """Remove files from all snapshots, with what they point to; and the repository's folder once empty."""
    folder = next(parent for parent in files[0].parents if parent.name.startswith("models--"))
    names = {path.name for path in files}
    links = [path for path in (folder / "snapshots").rglob("*") if path.is_file()]
    blobs = {path.resolve() for path in links if path.name in names}
    kept = {path.resolve() for path in links if path.name not in names}
    for path in links:
        if path.name in names:
            path.unlink()
    for blob in blobs - kept:  # files of equal content share one
        blob.unlink(missing_ok=True)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
