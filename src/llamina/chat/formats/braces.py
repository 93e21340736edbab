"""Gemma's calls: `call:NAME{key:<escape>text<escape>,key:1}`."""

import json
from dataclasses import dataclass
from typing import Any

from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import MAX_DEPTH, parsed
from llamina.chat.parse.reader import MAX_BLOCK, NotACall, Parse, Reader


@dataclass(frozen=True, slots=True)
class Braces:
    """Keys are not quoted, strings stand between `quote` markers, all else is JSON."""

    open: str
    close: str
    quote: str

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close, self.quote)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from reader.skip_whitespace()
        yield from reader.expect("call:")
        text, _ = yield from reader.through(self.close, longest=MAX_BLOCK)
        name, brace, rest = text.partition("{")
        values = _Values(brace + rest, self.quote)
        arguments = values.object(0)
        if values.text[values.at :].strip():
            raise NotACall("text after the arguments")
        yield from calls.whole(reader, name.strip(), json.dumps(arguments, ensure_ascii=False))

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def block(self) -> Block:
        return Block(self.open, self.close)

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        arguments = lark.listed(schema, lambda key, inner: [lark.text(f"{key}:"), *self._value(inner, lark)], ",")
        return [lark.text(f"call:{name}{{"), arguments, lark.text("}")]

    def _value(self, schema: Schema, lark: Lark) -> list[str]:
        if schema.get("type") != "string":
            return [lark.json(schema)]
        return [lark.text(self.quote), *lark.plain(schema, self.quote)]


class _Values:
    """A recursive-descent parser of values in a complete text; raises NotACall where the text is malformed."""

    def __init__(self, text: str, quote: str) -> None:
        self.text = text
        self.at = 0
        self._quote = quote

    def object(self, depth: int) -> dict[str, Any]:
        self._expect("{")
        members: dict[str, Any] = {}
        while not self._take("}"):
            if members:
                self._expect(",")
            key = self._string() if self._take(self._quote) else self._until(":").strip().strip('"')
            self._expect(":")
            members[key] = self._value(depth + 1)
        return members

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise NotACall(f"arguments deeper than {MAX_DEPTH} levels")
        if self._take(self._quote):
            return self._string()
        if self._next("{"):
            return self.object(depth)
        if self._next('"'):
            return self._json_string()
        if self._take("["):
            items: list[Any] = []
            while not self._take("]"):
                if items:
                    self._expect(",")
                items.append(self._value(depth + 1))
            return items
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",]}":
            self.at += 1
        return parsed(self.text[start : self.at].strip())

    def _json_string(self) -> Any:
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError as error:
            raise NotACall("a string that does not end") from error
        return value

    def _string(self) -> str:
        text = self._until(self._quote)
        self.at += len(self._quote)
        return text

    def _until(self, word: str) -> str:
        at = self.text.find(word, self.at)
        if at < 0:
            raise NotACall(f"arguments without {word}")
        text, self.at = self.text[self.at : at], at
        return text

    def _next(self, word: str) -> bool:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.text.startswith(word, self.at)

    def _take(self, word: str) -> bool:
        is_next = self._next(word)
        self.at += len(word) if is_next else 0
        return is_next

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise NotACall(f"{self.text[self.at : self.at + 20]!r} where {word} is expected")
