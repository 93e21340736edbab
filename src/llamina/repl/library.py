"""Conversations that are kept on disk: one file each, which `/load` and `llamina chat --load` can open, too."""

import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llamina.errors import SnapshotError
from llamina.repl import transcript
from llamina.repl.talk import text_of

LONGEST = 60  # characters of a title that nobody gave


@dataclass(eq=False)
class Kept:
    """A conversation of the library. `title` is empty until somebody gives one."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    title: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    changed: float = field(default_factory=time.time)  # seconds since 1970
    on_disk: bool = False

    @property
    def shown_title(self) -> str:
        """Its title, or how its first question begins."""
        first = next((text_of(message) for message in self.messages if message["role"] == "user"), "")
        line = " ".join(first.split())
        return self.title or (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…") or "New conversation"

    def has(self, text: str) -> bool:
        """Whether a text is in the title or in what was said, in upper or lower case."""
        wanted = text.casefold()
        words = (text_of(message) for message in self.messages if message.get("content"))
        return wanted in self.shown_title.casefold() or any(wanted in said.casefold() for said in words)


class Library:
    """A folder of conversations. It need not exist; the first that is kept makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> tuple[list[Kept], list[str]]:
        """All conversations, the latest first, and what is wrong with files that cannot be read."""
        found, wrong = [], []
        for path in self.folder.glob("*.json"):
            try:
                read = transcript.read_titled(path)
                if read is None:
                    raise SnapshotError(f"{path} is no conversation")
                found.append(Kept(path.stem, read[0], read[1], path.stat().st_mtime, on_disk=True))
            except (SnapshotError, OSError) as error:
                wrong.append(str(error))
        return sorted(found, key=lambda kept: kept.changed, reverse=True), wrong

    def keep(self, kept: Kept) -> None:
        """Write a conversation down. Raises SnapshotError if that cannot be done."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SnapshotError(f"{self.folder} cannot be made: {error.strerror}") from error
        transcript.write(self._path(kept), kept.messages, kept.title)
        kept.changed, kept.on_disk = time.time(), True

    def delete(self, kept: Kept) -> None:
        """Raises SnapshotError if it cannot be deleted; one that was never kept is none."""
        try:
            self._path(kept).unlink(missing_ok=True)
        except OSError as error:
            raise SnapshotError(f"{self._path(kept)} cannot be deleted: {error.strerror}") from error

    def _path(self, kept: Kept) -> Path:
        return self.folder / f"{kept.id}.json"
