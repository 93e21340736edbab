"""GGUF files on the Hugging Face Hub: `user/repo[:quant]` → files in its own cache, shared with other programs."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from llamina.errors import DownloadError, LlaminaError, ModelNotFound, RequestError
from llamina.hub.assemble import checksum
from llamina.hub.catalogue import Entry, HubFile, Progress
from llamina.hub.fetching import Wanted, fetch
from llamina.hub.hf_cache import cached, link, lock_path, note_commit, quant_of, repo_folder
from llamina.hub.shards import is_encoder, is_first, shard_names, stem
from llamina.hub.transfer import check_room
from llamina.hub.web import FEW, HUB, Refused, Web, check_online, endpoint, offline

PREFERRED = "Q4_K_M"
ENCODERS = ("F16", "BF16", "Q8_0", "F32")  # types of encoders, the preferred one first
MAIN = "main"
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_REVISION = re.compile(r"\w[\w./+-]*")
_PAGE = re.compile(r"/(?P<repo>[^/]+/[^/]+)(?:/(?:blob|resolve|raw|tree)/(?P<revision>[^/]+)(?:/(?P<file>.+))?)?/?")


# ---- names -------------------------------------------------------------------------------------------------


def is_name(name: str) -> bool:
    """Whether it is spelt like `user/repo[:quant]`, and not like the path of a file."""
    return _NAME.fullmatch(name.partition(":")[0]) is not None and not name.lower().endswith(".gguf")


def parse(name: str) -> tuple[str, str | None]:
    """The repository and the quantization, if any, of `user/repo[:quant]`; raises `RequestError` if it is none."""
    repo, _, quant = name.partition(":")
    if not _NAME.fullmatch(repo):
        raise RequestError(f"{name!r} is not a repository: write user/repo or user/repo:quant", "model")
    return repo, quant or None


def from_url(url: str) -> tuple[str, str | None] | None:
    """The name and the revision that an address of the Hub stands for; None if it is none of its files or pages."""
    parts = urlsplit(url)
    if parts.netloc.lower() not in {urlsplit(place).netloc.lower() for place in (HUB, endpoint(), "https://hf.co")}:
        return None
    match = _PAGE.fullmatch(unquote(parts.path))
    if match is None:
        return None
    return f"{match['repo']}:{match['file']}" if match["file"] else match["repo"], match["revision"]


def choose(files: Sequence[str], quant: str | None, repo: str) -> str:
    """The file that is meant: of that name or quantization; without one, Q4_K_M, else the first.

    Raises `ModelNotFound`.
    """
    every = sorted(file for file in files if file.lower().endswith(".gguf") and is_first(file))
    models = [file for file in every if not is_encoder(file)]
    if not models:
        raise ModelNotFound(f"{repo} has no GGUF files: look for a repository whose name ends in -GGUF")
    wanted = quant or PREFERRED
    for candidates, matches in ((every, _is_called), (models, _has_quant)):
        if found := [file for file in candidates if matches(file, wanted)]:
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


def encoder_for(model: str, files: Sequence[str]) -> str | None:
    """The encoder of pictures or sound that belongs to a model, in its folder or above; None if there is none."""
    above = [str(folder) for folder in PurePath(model).parents]
    found = [file for file in sorted(files) if file.lower().endswith(".gguf") and is_encoder(file)]
    near = [file for file in found if str(PurePath(file).parent) in above]
    ranks = {quant: rank for rank, quant in enumerate(ENCODERS)}
    return min(near, key=lambda file: ranks.get(quant_of(file), len(ranks)), default=None)


# ---- fetching ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepoFile:
    """What the Hub says of a file."""

    name: str
    blob: str  # what its content is called in the cache
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of a repository at one commit."""

    name: str
    commit: str
    files: dict[str, RepoFile]


def pull(
    name: str,
    progress: Progress,
    *,
    revision: str | None = None,
    force: bool = False,
    sha256: str | None = None,
    mmproj: bool = True,
    token: str | None = None,
) -> Path:
    """Fetch what is not in the cache yet, all shards and the encoder of pictures included; the first file.

    It costs one request if all is there. Without a network, what the cache has serves. Raises `ModelNotFound`,
    `DownloadError`, or `RequestError` if the name is no repository's.
    """
    repo, quant = parse(name)
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise RequestError(f"revision is {revision!r}: it must be a branch, a tag or a commit", "revision")
    if offline() and (kept := _kept(repo, quant, revision)) is not None:
        return kept
    check_online(name)
    web = Web(token)
    try:
        here = not force and any(entry.repo.lower() == repo.lower() for entry in cached(revision))
        try:
            found = _listing(web, repo, revision or MAIN, tries=1 if here else FEW)
        except DownloadError:
            if force or (kept := _kept(repo, quant, revision)) is None:
                raise
            return kept
        chosen = choose(list(found.files), quant, repo)
        names = shard_names(chosen)
        if lacking := [shard for shard in names if shard not in found.files]:
            raise ModelNotFound(f"{repo} lacks {lacking[0]}: a model is run with all of its {len(names)} shards")
        if sha256 and len(names) > 1:
            raise RequestError(f"{chosen} is one of {len(names)} files: one SHA-256 cannot be that of all", "sha256")
        if mmproj and not is_encoder(chosen) and (encoder := encoder_for(chosen, list(found.files))):
            names = [*names, encoder]
        title = f"{found.name}:{quant_of(chosen)}"
        path = _Fetching(web, found, progress, title, force).bring(names, sha256)
        note_commit(found.name, revision or MAIN, found.commit)
        return path
    finally:
        web.close()


def _kept(repo: str, quant: str | None, revision: str | None) -> Path | None:
    """The file that is meant among those in the cache, if the repository cannot be asked; None if there are none."""
    have = {entry.path.name: entry.path for entry in cached(revision) if entry.repo.lower() == repo.lower()}
    return have[choose(list(have), quant, repo)] if have else None


def _listing(web: Web, repo: str, revision: str, tries: int) -> Repository:
    """Ask the Hub for the files of a repository."""
    url = f"{endpoint()}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    try:
        found = web.json(url, tries)
        files = [_repo_file(file, found["sha"]) for file in found.get("siblings") or ()]
        name = str(found.get("id"))  # as it is spelt, or called now
        return Repository(name if _NAME.fullmatch(name) else repo, found["sha"], {file.name: file for file in files})
    except Refused as error:
        raise _failure(error, repo, revision) from error
    except (LookupError, TypeError, AttributeError):
        raise DownloadError(f"{repo}: {endpoint()} does not answer as the Hub does: check HF_ENDPOINT") from None


def _repo_file(told: dict[str, Any], commit: str) -> RepoFile:
    name, large = str(told["rfilename"]), told.get("lfs") or {}
    sha256, size = large.get("sha256"), large.get("size", told.get("size"))
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts or not re.fullmatch(r"\w+", commit):
        raise DownloadError(f"the Hub names a file {name!r} at {commit!r}: such a name is not taken")
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise DownloadError(f"the Hub says that the SHA-256 of {name} is {sha256!r}: that is none")
    known = sha256 or told.get("blobId") or ""
    blob = known if re.fullmatch(r"\w+", known) else hashlib.sha256(f"{commit}/{name}".encode()).hexdigest()
    return RepoFile(name, blob, size, sha256)


@dataclass(frozen=True, slots=True)
class _Fetching:
    """Files of one repository on their way into the cache."""

    web: Web
    repository: Repository
    progress: Progress
    title: str  # for people
    force: bool

    def bring(self, names: Sequence[str], sha256: str | None) -> Path:
        """Have all these files in a snapshot, and return the path of the first. `sha256` is what it must have."""
        files = [self.repository.files[name] for name in names]
        if sha256 and files[0].sha256 not in (None, sha256):
            said = f"{files[0].name} has the SHA-256 {files[0].sha256} on the Hub"
            raise DownloadError(f"{said}, not {sha256}: check the revision, or the SHA-256")
        folder = repo_folder(self.repository.name)
        missing = [
            file for file in files if self.force or not self._is_here(file, sha256 if file is files[0] else None)
        ]
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            check_room(folder, sum(file.size or 0 for file in missing) - self._partly(missing), "HF_HUB_CACHE")
        total, before = sum(file.size or 0 for file in files), 0
        for file in files:
            if file in missing:
                tell = partial(self._tell, file.name, before, total if all(f.size for f in files) else 0)
                self._fetch(file, sha256 if file is files[0] else None, tell)
            before += file.size or 0
        if missing:
            self.progress(self.title, total, total)
        return self._place(files[0])

    def _place(self, file: RepoFile) -> Path:
        return repo_folder(self.repository.name) / "snapshots" / self.repository.commit / file.name

    def _is_here(self, file: RepoFile, sha256: str | None) -> bool:
        """Whether a file of the right size, and of that SHA-256 if one is given, is in the snapshot."""
        place = self._place(file)
        if not place.is_file() or file.size not in (None, place.stat().st_size):
            return False
        return sha256 is None or checksum(place) == sha256

    def _partly(self, files: Sequence[RepoFile]) -> int:
        """Bytes of earlier attempts."""
        blobs = repo_folder(self.repository.name) / "blobs"
        return sum(part.stat().st_size for file in files if (part := blobs / f".{file.blob}.part").exists())

    def _tell(self, file: str, before: int, total: int, what: str, done: int, size: int) -> None:
        """Progress of one file as progress of all."""
        if what == file:
            self.progress(self.title, before + done, total or size)
        else:
            self.progress(what, done, size)

    def _fetch(self, file: RepoFile, sha256: str | None, tell: Progress) -> None:
        repo, commit = self.repository.name, self.repository.commit
        blob = repo_folder(repo) / "blobs" / file.blob
        url, lock = _address(repo, commit, file.name), lock_path(repo, file.blob)
        wanted = Wanted(url, file.name, blob, lock, file.size, sha256 or file.sha256, "HF_HUB_CACHE")
        damaged = blob.exists() and (file.size not in (None, blob.stat().st_size) or sha256 is not None)
        _named(repo, partial(fetch, self.web, wanted, tell, self.force or damaged))
        link(blob, self._place(file))


def fetch_file(source: HubFile, entry: Entry, folder: Path, progress: Progress) -> Path:
    """Fetch a file into `folder`, or go on with what an earlier attempt has left there, and return its path.

    What the Hub says of the file is compared first, so that another one is not fetched in vain. Raises `DownloadError`
    or `ModelNotFound`.
    """
    target = folder / PurePath(source.file).name
    url = _address(source.repo, MAIN, source.file)
    wanted = Wanted(url, source.file, target, size=entry.size, sha256=entry.sha256)
    web = Web()
    try:
        _named(source.repo, partial(fetch, web, wanted, lambda _, done, total: progress(entry.name, done, total)))
    finally:
        web.close()
    return target


def _address(repo: str, revision: str, file: str) -> str:
    return f"{endpoint()}/{repo}/resolve/{quote(revision, safe='')}/{quote(file)}"


def _named(repo: str, call: Callable[[], object]) -> None:
    """Call, with a refusal told as one of the repository."""
    try:
        call()
    except Refused as error:
        raise _failure(error, repo) from error


def _failure(error: Refused, repo: str, revision: str = MAIN) -> LlaminaError:
    """What a refusal of the Hub means."""
    if error.code == "GatedRepo":
        return DownloadError(f"{repo} is gated: accept its terms on its page, then log in with `hf auth login`")
    if error.code == "RevisionNotFound":
        return ModelNotFound(f"{repo} has no revision {revision}: give a branch, a tag or a commit")
    if error.code == "EntryNotFound":
        return ModelNotFound(f"{repo}: {error}")
    if error.code == "RepoNotFound" or error.status == 404:
        return ModelNotFound(f"{repo} is not on Hugging Face, or is private: check the name, or set HF_TOKEN")
    if error.status in (401, 403):
        way = "set HF_TOKEN to a token that may, or log in with `hf auth login`"
        return DownloadError(f"{repo} may not be read ({error.status}): {way}")
    return DownloadError(f"{repo} could not be fetched: {error}")
