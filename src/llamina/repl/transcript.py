"""A conversation as JSON, without a KV cache: what any partner can go on with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llamina.errors import SnapshotError
from llamina.repl.partner import Message

KIND = "llamina conversation"


def write(path: Path, messages: Sequence[Message], title: str = "") -> None:
    """Raises SnapshotError if the file cannot be written."""
    titled = {"title": title} if title else {}
    text = json.dumps({"kind": KIND, **titled, "messages": list(messages)}, ensure_ascii=False, indent=1)
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SnapshotError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path) -> list[dict[str, Any]] | None:
    """The messages; None if it is another kind of file. Raises SnapshotError if it cannot be read."""
    found = read_titled(path)
    return None if found is None else found[1]


def read_titled(path: Path) -> tuple[str, list[dict[str, Any]]] | None:
    """The title, which may be empty, and the messages, as `read`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error.strerror}") from error
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(data)
        messages = found["messages"]
        if found["kind"] != KIND or not all(isinstance(message["role"], str) for message in messages):
            raise KeyError
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path} is JSON, and no conversation that /save has written") from error
    return str(found.get("title", "")), [dict(message) for message in messages]
