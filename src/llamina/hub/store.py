"""The models that are on this machine: those we keep, and GGUF files in Hugging Face's cache."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llamina.errors import ModelNotFound
from llamina.hub import huggingface
from llamina.hub.shards import first_shards, shards_of
from llamina.hub.sources import SOURCES, canonical, source_of
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
    def names(self) -> set[str]:
        """All it may be called, in canonical form."""
        return {canonical(self.name), canonical(self.path.name)}


def folder() -> Path:
    """Where pulled models are kept."""
    return cache_dir() / "models"


def models() -> list[Model]:
    """Every model that is here, sorted by name."""
    short = {source.file: source.name for source in SOURCES.values()}
    kept = [Model(short.get(path.name, path.stem), path) for path in first_shards(folder().glob("*.gguf"))]
    cached = [Model(entry.name, entry.path, entry.repo) for entry in huggingface.cached()]
    return sorted(kept + cached, key=lambda model: model.name.lower())


def names() -> list[str]:
    """What the models here are called."""
    return [model.name for model in models()]


def find(name: str) -> Path:
    """The file of a pulled model: by its short name, file name, or `user/repo[:quant]`, in any case."""
    return find_model(name).path


def find_model(name: str) -> Model:
    """The pulled model of that name."""
    here = models()
    for model in here:
        if canonical(name) in model.names:
            return model
    in_repo = [model for model in here if model.repo and model.repo.lower() == name.lower()]
    if in_repo:
        chosen = huggingface.choose([model.path.name for model in in_repo], None, name)
        return next(model for model in in_repo if model.path.name == chosen)
    raise ModelNotFound(_absence(name, [model.name for model in here]))


def _absence(name: str, here: list[str]) -> str:
    """What is here instead, and the way to get it."""
    listed = f"the models here are {', '.join(here)}" if here else "no model has been pulled yet"
    if source_of(name) or ("/" in name and not name.endswith(".gguf")):
        return f"{name!r} is not here ({listed}): get it with `llamina pull {name}`"
    return f"{name!r} is neither a file nor a pulled model ({listed}): get one with `llamina pull`"


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
    shutil.rmtree(folder() / f".{name}", ignore_errors=True)
    (folder() / f".{name}.lock").unlink(missing_ok=True)


__all__ = ["Model", "find", "find_model", "folder", "models", "models_of", "names", "remove"]
