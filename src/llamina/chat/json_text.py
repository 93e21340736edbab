"""JSON in a stream, followed character by character and kept as it is written."""

import json
import re
from typing import Any

from llamina.chat.events import CallArguments
from llamina.chat.reader import BLANKS, NotACall, Parse, Reader

DEEPEST = 200
_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
_SCALAR_LETTERS = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzE")
_HEX = frozenset("0123456789abcdefABCDEF")


class JsonValue:
    """Where we are in one JSON value. `push` takes its characters; what cannot follow raises NotACall."""

    def __init__(self) -> None:
        self.done = False
        self._closers: list[str] = []
        self._wants = "value"  # or key, first key, first value, colon, more (a comma or the end)
        self._string: str | None = None  # inside a string: what is wanted, "text", "escape" or hex digits left
        self._scalar: list[str] = []

    def push(self, char: str) -> bool:
        """Whether the character is part of the value; if not, the value ended before it."""
        if self._string is not None:
            self._in_string(char)
            return True
        if self._scalar:
            if char in _SCALAR_LETTERS:
                self._scalar.append(char)
                return True
            self._end_scalar()
            if self.done:
                return False
        if char in BLANKS:
            return True
        self._structure(char)
        return True

    def finish(self) -> None:
        """No more characters will come."""
        if self._scalar:
            self._end_scalar()
        if not self.done:
            raise NotACall("the JSON is not finished")

    def _structure(self, char: str) -> None:
        wants = self._wants
        if char == '"' and wants in ("value", "first value", "key", "first key"):
            self._string = "text"
        elif char in "{[" and wants in ("value", "first value"):
            if len(self._closers) == DEEPEST:
                raise NotACall(f"JSON deeper than {DEEPEST} levels")
            self._closers.append("}" if char == "{" else "]")
            self._wants = "first key" if char == "{" else "first value"
        elif self._closers and char == self._closers[-1] and wants in ("more", "first key", "first value"):
            self._closers.pop()
            self._after_value()
        elif char == "," and wants == "more":
            self._wants = "key" if self._closers[-1] == "}" else "value"
        elif char == ":" and wants == "colon":
            self._wants = "value"
        elif char in _SCALAR_LETTERS and wants in ("value", "first value"):
            self._scalar = [char]
        else:
            raise NotACall(f"{char!r} in JSON where a {wants} is expected")

    def _after_value(self) -> None:
        self._wants = "more"
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
                if self._wants in ("key", "first key"):
                    self._wants = "colon"
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
    """One JSON value as it is written; one that does not begin with a character of `begin` is not a call."""
    yield from reader.blanks()
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
    """One JSON string, decoded."""
    text: str = json.loads((yield from json_text(reader, '"')))
    return text


def stream_object(reader: Reader, index: int) -> Parse[None]:
    """A JSON object as the arguments of a call, told as it comes."""
    yield from reader.blanks()
    if (yield from reader.peek()) != "{":
        raise NotACall("arguments that are no JSON object")
    value, said = JsonValue(), reader.at
    while not value.done:
        if reader.at == len(reader.text) and said < reader.at:
            text, said = reader.text[said : reader.at], reader.at
            yield CallArguments(index, text)
        char = yield from reader.peek()
        try:
            value.push(char) if char else value.finish()
        except NotACall:  # what was fine of it is told, however it came
            yield CallArguments(index, reader.text[said : reader.at])
            raise
        reader.at += 1
    yield CallArguments(index, reader.text[said : reader.at])


def parsed(text: str) -> Any:
    """A JSON value, or NotACall. NaN and the like are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotACall(f"{text[:40]!r} is no JSON") from error


def _refuse(name: str) -> Any:
    raise ValueError(name)
