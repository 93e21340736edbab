"""The models that are on this machine: those we keep, and GGUF files in Hugging Face's cache."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from llamina.errors import ModelNotFound
from llamina.hub import huggingface
from llamina.hub.catalogue import CATALOGUE, Entry, canonical, entry_of, entry_of_file
from llamina.hub.shards import first_shards, shards_of
from llamina.places import cache_dir


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
        return {canonical(self.name), canonical(self.path.name)}


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
    kept = [Model(short.get(path.name, path.stem), path) for path in first_shards(folder().glob("*.gguf"))]
    cached = [Model(entry.name, entry.path, entry.repo) for entry in huggingface.cached()]
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
        huggingface.delete(model.files)
        return
    for path in model.files:
        path.unlink()
    _forget_attempts(model.name)


def _forget_attempts(name: str) -> None:
    shutil.rmtree(staging_path(name), ignore_errors=True)
    stamp_path(name).unlink(missing_ok=True)
    (folder() / f".{name}.lock").unlink(missing_ok=True)
