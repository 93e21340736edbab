"""Where a file in the folder of models came from, noted beside it: an address, and which version of the file it was."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from llamina.errors import RequestError
from llamina.hub.web import shown


@dataclass(frozen=True, slots=True)
class Origin:
    """An address without its secrets, and the file as it was when it came from there."""

    url: str
    tag: str  # the server's; "" if it gave none
    size: int
    time: int  # of its last change, in nanoseconds

    @classmethod
    def of(cls, path: Path, url: str, tag: str) -> Self:
        stat = path.stat()
        return cls(shown(url), tag, stat.st_size, stat.st_mtime_ns)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What is noted of a file; None if nothing is."""
        with suppress(OSError, ValueError, TypeError):
            return cls(**json.loads(note_path(path).read_text(encoding="utf-8")))
        return None

    def write(self, path: Path) -> None:
        note_path(path).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    def is_of(self, path: Path) -> bool:
        """Whether the file has not been changed since."""
        stat = path.stat()
        return (stat.st_size, stat.st_mtime_ns) == (self.size, self.time)


def note_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.origin")


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def file_name(url: str) -> str:
    """What a file at an address is called here. Raises RequestError if it is no GGUF file, going by its name."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not name.lower().endswith(".gguf") or name.startswith(".") or "\\" in name or "\0" in name:
        raise RequestError(f"{shown(url)} does not end with the name of a GGUF file: give the address of one", "model")
    return name
