"""A TOML file with the lines of its keys, which `tomllib` does not tell."""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from llamina.server.settings.mistakes import InvalidConfig, Mistake

Path_ = tuple[str, ...]


class TomlFile:
    """`table` is what is in it. Raises InvalidConfig if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
            self.table = tomllib.loads(text)
        except OSError as error:
            raise InvalidConfig([Mistake(str(path), f"cannot be read: {error.strerror}")]) from error
        except UnicodeDecodeError as error:
            raise InvalidConfig([Mistake(str(path), f"is not UTF-8: byte {error.start}")]) from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidConfig([_not_toml(path, str(error), len(text.splitlines()))]) from error
        self._lines = key_lines(text)

    def where(self, key: Path_) -> str:
        """FILE:LINE of a key, or of the table that it should be in."""
        while key and key not in self._lines:
            key = key[:-1]
        return f"{self.path}:{self._lines.get(key, 1)}"


def key_lines(text: str) -> dict[Path_, int]:
    """The line of every key and table of a valid document: statements are the lines that parse together."""
    lines, found = text.splitlines(), dict[Path_, int]()
    table: Path_ = ()
    start, counts = 0, Counter[Path_]()
    for end in range(1, len(lines) + 1):
        try:
            parsed = tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        keys = _paths(parsed)
        head = lines[start].lstrip()
        if head.startswith("["):
            table = max(keys, key=len)
            if head.startswith("[["):  # one more of a list
                counts[table] += 1
                table = (*table, str(counts[table] - 1))
                keys.append(table)
        else:
            keys = [(*table, *key) for key in keys]
        for key in keys:
            found.setdefault(key, start + 1)
        start = end
    return found


def _paths(value: Any, before: Path_ = ()) -> list[Path_]:
    if isinstance(value, list):
        return [path for item in value for path in _paths(item, before)]
    if not isinstance(value, dict):
        return []
    return [path for key, inner in value.items() for path in ((*before, key), *_paths(inner, (*before, key)))]


def _not_toml(path: Path, message: str, last: int) -> Mistake:
    at = re.search(r" \(at line (\d+), column (\d+)\)", message)
    where = f"{path}:{at[1] if at else last}"
    text = message.replace(at[0], f", column {at[2]}") if at else message
    return Mistake(where, f"is not valid TOML: {text}")
