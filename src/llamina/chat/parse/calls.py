"""The tool calls of one answer: their numbers, their ids, and where the last complete one ended."""

import secrets
import string
from collections.abc import Callable

from llamina.chat.events import CallArguments, CallBegin, CallDropped, CallEnd
from llamina.chat.parse.reader import NotACall, Parse, Reader
from llamina.chat.tools import Tools

_ALPHABET = string.ascii_letters + string.digits


def random_id() -> str:
    """Return nine letters and digits: the form that the strictest templates (Mistral's) accept."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class Calls:
    """Numbers the calls of an answer, and makes their events."""

    def __init__(self, tools: Tools, new_id: Callable[[], str] = random_id) -> None:
        self.tools = tools
        self.index = -1  # of the last call
        self.is_open = False
        self.ended_at = 0  # where in the reader's text the last complete call ended
        self._new_id = new_id

    def begin(self, name: str, id: str = "") -> CallBegin:
        """Return the event that opens a call. Raises NotACall if no tool can have this name."""
        if not name or any(char in name for char in ' \t\r\n"<>{}'):
            raise NotACall(f"{name!r} cannot be the name of a tool")
        self.index += 1
        self.is_open = True
        return CallBegin(self.index, id or self._new_id(), name)

    def end(self, reader: Reader) -> CallEnd:
        """Return the event that completes the open call."""
        self.is_open = False
        self.ended_at = reader.at
        return CallEnd(self.index)

    def drop(self) -> CallDropped:
        """Return the event that takes the open call back."""
        self.is_open = False
        return CallDropped(self.index)

    def whole(self, reader: Reader, name: str, arguments: str, id: str = "") -> Parse[None]:
        """Emit all events of a call that is complete."""
        yield self.begin(name, id)
        yield CallArguments(self.index, arguments)
        yield self.end(reader)
