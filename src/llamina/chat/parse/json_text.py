"""JSON in a stream: checked character by character, returned exactly as it is written."""

import json
import re
from typing import Any

from llamina.chat.events import CallArguments
from llamina.chat.parse.reader import WHITESPACE, NotACall, Parse, Reader

MAX_DEPTH = 200
_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
_SCALAR_CHARACTERS = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzE")
_HEX = frozenset("0123456789abcdefABCDEF")


class JsonValue:
    """The state of a push parser for one JSON value; `done` once the value is complete."""

    def __init__(self) -> None:
        self.done = False
        self._closers: list[str] = []
        self._expected = "value"  # or key, first key, first value, colon, more (a comma or the end)
        self._string: str | None = None  # inside a string: "text", "escape", or how many hex digits are left
        self._scalar: list[str] = []

    @property
    def at_key(self) -> bool:
        """Whether a comma has just been read between members of the outermost object."""
        return self._closers == ["}"] and self._expected == "key" and self._string is None

    def push(self, char: str) -> bool:
        """Take a character; False if the value ended before it. Raises NotACall for one that cannot follow."""
        if self._string is not None:
            self._in_string(char)
            return True
        if self._scalar:
            if char in _SCALAR_CHARACTERS:
                self._scalar.append(char)
                return True
            self._end_scalar()
            if self.done:
                return False
        if char in WHITESPACE:
            return True
        self._structure(char)
        return True

    def finish(self) -> None:
        """Declare the end of the text. Raises NotACall if the value is not complete."""
        if self._scalar:
            self._end_scalar()
        if not self.done:
            raise NotACall("the JSON is not finished")

    def _structure(self, char: str) -> None:
        expected = self._expected
        if char == '"' and expected in ("value", "first value", "key", "first key"):
            self._string = "text"
        elif char in "{[" and expected in ("value", "first value"):
            if len(self._closers) == MAX_DEPTH:
                raise NotACall(f"JSON deeper than {MAX_DEPTH} levels")
            self._closers.append("}" if char == "{" else "]")
            self._expected = "first key" if char == "{" else "first value"
        elif self._closers and char == self._closers[-1] and expected in ("more", "first key", "first value"):
            self._closers.pop()
            self._after_value()
        elif char == "," and expected == "more":
            self._expected = "key" if self._closers[-1] == "}" else "value"
        elif char == ":" and expected == "colon":
            self._expected = "value"
        elif char in _SCALAR_CHARACTERS and expected in ("value", "first value"):
            self._scalar = [char]
        else:
            raise NotACall(f"{char!r} in JSON where a {expected} is expected")

    def _after_value(self) -> None:
        self._expected = "more"
        self.done = not self._closers

    def _end_scalar(self) -> None:
        if not _SCALAR.fullmatch("".join(self._scalar)):
            raise NotACall(f"{''.join(self._scalar)!r} in JSON")
        self._scalar = []
        self._after_value()

    def _in_string(self, char: str) -> None:
        if self._string == "text":
            if char == '"':
                self._string = None
                if self._expected in ("key", "first key"):
                    self._expected = "colon"
                else:
                    self._after_value()
            elif char == "\\":
                self._string = "escape"
            elif char < " ":
                raise NotACall(f"{char!r} in a JSON string")
        elif self._string == "escape" and char in '"\\/bfnrtu':
            self._string = "4" if char == "u" else "text"
        elif self._string in ("1", "2", "3", "4") and char in _HEX:
            self._string = "text" if self._string == "1" else str(int(self._string) - 1)
        else:
            raise NotACall(f"{char!r} after a backslash in a JSON string")


def json_text(reader: Reader, begin: str = "") -> Parse[str]:
    """Return one JSON value as it is written. Raises NotACall if there is none, or none that begins so."""
    yield from reader.skip_whitespace()
    char = yield from reader.peek()
    if not char or (begin and char not in begin):
        raise NotACall(f"{char!r} where a JSON value beginning with {' or '.join(begin)} is expected")
    value, start = JsonValue(), reader.at
    while not value.done:
        char = yield from reader.peek()
        if not char:
            value.finish()
        elif value.push(char):
            reader.at += 1
    return reader.text[start : reader.at]


def json_string(reader: Reader) -> Parse[str]:
    """Return one JSON string, decoded. Raises NotACall if there is none."""
    text: str = json.loads((yield from json_text(reader, '"')))
    return text


def stream_object(reader: Reader, index: int) -> Parse[None]:
    """Emit a JSON object as the arguments of a call, as far as it has come. Raises NotACall if it is none."""
    yield from reader.skip_whitespace()
    if (yield from reader.peek()) != "{":
        raise NotACall("the arguments are not a JSON object")
    value, emitted = JsonValue(), reader.at
    while not value.done:
        if reader.at == len(reader.text) and emitted < reader.at:
            text, emitted = reader.text[emitted : reader.at], reader.at
            yield CallArguments(index, text)
        char = yield from reader.peek()
        try:
            value.push(char) if char else value.finish()
        except NotACall:  # the valid part is emitted, however the text was split
            yield CallArguments(index, reader.text[emitted : reader.at])
            raise
        reader.at += 1
    yield CallArguments(index, reader.text[emitted : reader.at])


def parsed(text: str) -> Any:
    """Return the value of a JSON text. Raises NotACall if it is not JSON; NaN and Infinity are not."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotACall(f"{text[:40]!r} is not JSON") from error


def _refuse(name: str) -> Any:
    raise ValueError(name)
