"""The models that are on this machine: those we keep, and GGUF files in Hugging Face's cache."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from llamina.errors import ModelNotFound
from llamina.hub import hf_cache, huggingface
from llamina.hub.catalogue import CATALOGUE, Entry, canonical, entry_of, entry_of_file
from llamina.hub.fetching import partial_path
from llamina.hub.origin import Origin, file_name, is_url, note_path
from llamina.hub.shards import first_shards, is_complete, is_encoder, shard_names, shards_of
from llamina.hub.transfer import journal_path
from llamina.hub.web import shown
from llamina.places import cache_dir

HF = "hf:"  # that the name of a repository may begin with


@dataclass(frozen=True, slots=True)
class Model:
    """A pulled model; a split one is named by its first shard."""

    name: str
    path: Path
    repo: str | None = None  # on Hugging Face

    @property
    def files(self) -> list[Path]:
        return shards_of(self.path)

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def modified(self) -> datetime:
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)

    @property
    def entry(self) -> Entry | None:
        """The entry of the catalogue whose file it is."""
        return entry_of_file(self.path)

    @property
    def names(self) -> set[str]:
        """All it may be called, in canonical form."""
        own = {canonical(self.name), canonical(self.path.name)}
        return own | {canonical(f"{self.repo}:{self.path.name}")} if self.repo else own


def folder() -> Path:
    """Where pulled models are kept."""
    return cache_dir() / "models"


def staging_path(name: str) -> Path:
    """Where the parts of a model of the catalogue lie while it is being fetched."""
    return folder() / f".{name}"


def stamp_path(name: str) -> Path:
    """Where it is noted which file of a model of the catalogue was found to be intact."""
    return folder() / f".{name}.verified"


def models() -> list[Model]:
    """Every model that is here, sorted by name."""
    short = {entry.file: entry.name for entry in CATALOGUE.values()}
    whole = [path for path in first_shards(folder().glob("*.gguf")) if is_complete(path) and not is_encoder(path.name)]
    kept = [Model(short.get(path.name, path.stem), path) for path in whole]
    cached = [Model(entry.name, entry.path, entry.repo) for entry in hf_cache.cached()]
    return sorted(kept + cached, key=lambda model: model.name.lower())


def names() -> list[str]:
    """What the models here are called."""
    return [model.name for model in models()]


def find(name: str) -> Path:
    """The file of a pulled model: by its short name, file name, or `user/repo[:quant]`, in any case.

    Raises `ModelNotFound` with the names that come near it.
    """
    return find_model(name).path


def find_model(name: str) -> Model:
    """The pulled model of that name; raises `ModelNotFound`."""
    if is_url(name):
        if (page := huggingface.from_url(name)) is None:
            return _from_address(name)
        name = page[0]
    name = name.removeprefix(HF)
    here = models()
    for model in here:
        if canonical(name) in model.names:
            return model
    in_repo = [model for model in here if model.repo and model.repo.lower() == name.lower()]
    if in_repo:
        chosen = huggingface.choose([model.path.name for model in in_repo], None, name)
        return next(model for model in in_repo if model.path.name == chosen)
    if entry_of(name) or huggingface.is_name(name):
        raise ModelNotFound(f"{name!r} has not been pulled: get it with `llamina pull {name}`")
    raise ModelNotFound(unknown(name, here))


def _from_address(url: str) -> Model:
    """The pulled model that came from an address, unless a file of it was changed."""
    path = folder() / file_name(url)
    files = [path.with_name(shard) for shard in shard_names(path.name)]
    origins = {file: Origin.read(file) for file in files if file.exists()}
    intact = [file for file, origin in origins.items() if origin is not None and origin.is_of(file)]
    origin = origins.get(path)
    if intact == files and origin is not None and origin.url == shown(url):
        return Model(files[0].stem, files[0])
    raise ModelNotFound(f"{shown(url)} has not been pulled: get it with `llamina pull`")


def unknown(name: str, here: Iterable[Model] = ()) -> str:
    """That nothing is called so; what comes near it among pulled models and the catalogue, and what there is."""
    known = list(dict.fromkeys([*(model.name for model in here), *CATALOGUE]))
    spelt = {canonical(name): name for name in known}
    near = [spelt[match] for match in get_close_matches(canonical(name), spelt)]
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    return (
        f"{name!r} is neither a file nor a pulled model, nor in the catalogue{meant}: "
        f"give a file, one of {', '.join(known)}, or a Hugging Face repository as user/repo[:quant]"
    )


def models_of(name: str) -> list[Model]:
    """The pulled model of that name; of a bare `user/repo`, all its models."""
    return [m for m in models() if m.repo and m.repo.lower() == name.lower()] or [find_model(name)]


def remove(model: Model) -> None:
    """Delete a pulled model's files."""
    if model.repo:
        hf_cache.delete(model.files)
        return
    for path in model.files:
        path.unlink()
        partial = partial_path(path)
        for note in (note_path(path), partial, journal_path(partial), path.with_name(f".{path.name}.lock")):
            note.unlink(missing_ok=True)
    _forget_attempts(model.name)


def _forget_attempts(name: str) -> None:
    shutil.rmtree(staging_path(name), ignore_errors=True)
    stamp_path(name).unlink(missing_ok=True)
    (folder() / f".{name}.lock").unlink(missing_ok=True)
