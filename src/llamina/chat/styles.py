"""Ways of writing calls around JSON: objects between markers, and names followed by their arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from llamina.chat.calls import Calls
from llamina.chat.json_text import json_string, json_text, parsed, stream_object
from llamina.chat.lark import Lark, Schema
from llamina.chat.reader import NotACall, Parse, Reader

NAME_KEYS = ("name", "tool_name", "function_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
ID_KEYS = ("id", "tool_call_id", "call_id")


@dataclass(frozen=True, slots=True)
class Block:
    """Text before and after calls, and between several of them; None: each has a block of its own."""

    before: str = ""
    after: str = ""
    between: str | None = None


class Style(Protocol):
    """A way of writing calls."""

    @property
    def opens(self) -> tuple[str, ...]:
        """Markers at which calls begin."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers: where they are control tokens, the text must show them."""

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        """The calls after a marker, up to the marker that closes them. Raises NotACall."""

    @property
    def trigger(self) -> str:
        """The text with which a block of calls as they are written begins; empty: it may be anything."""

    @property
    def block(self) -> Block:
        """What is written around one or several calls."""

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        """The parts of a grammar's rule for a call of this name, with arguments by this schema, within a block."""


@dataclass(frozen=True, slots=True)
class Objects:
    """`open {"name": …, "arguments": {…}} close`, or a list of such objects."""

    open: str
    close: str
    keys: tuple[str, str] = ("name", "arguments")  # as they are written; others are understood
    listed: bool = False  # written as a list
    known: bool = False  # only the names of tools are calls: the marker alone says little
    id_last: bool = False  # an id may come after the arguments, which wait for it
    blank: str = "\n"  # written inside of the markers

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from read_objects(reader, calls, known=self.known, id_last=self.id_last)
        yield from reader.blanks()
        if self.close:
            yield from reader.take(self.close)

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def block(self) -> Block:
        end = f"{self.blank}{self.close}" if self.close else ""
        if self.listed:
            return Block(f"{self.open}{self.blank}[", f"]{end}", ", ")
        return Block(f"{self.open}{self.blank}", end)

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        name_key, arguments_key = self.keys
        return [lark.text(f'{{"{name_key}": "{name}", "{arguments_key}": '), lark.json(schema), lark.text("}")]


def read_objects(reader: Reader, calls: Calls, known: bool = False, id_last: bool = False) -> Parse[None]:
    """Objects that say what to call, one after the other or in a list."""
    yield from reader.blanks()
    if not (yield from reader.take("[")):
        yield from read_object(reader, calls, known, id_last)
        yield from reader.blanks()
        while (yield from reader.peek()) == "{":
            yield from read_object(reader, calls, known, id_last)
            yield from reader.blanks()
        return
    while True:
        yield from reader.blanks()
        yield from read_object(reader, calls, known, id_last)
        yield from reader.blanks()
        if (yield from reader.expect(",", "]")) == "]":
            return


def read_object(reader: Reader, calls: Calls, known: bool, id_last: bool) -> Parse[None]:
    """`{"name": …, "arguments": {…}}` in any order of its keys, others ignored."""
    name = id = arguments = ""
    begun = False
    separator = yield from reader.expect("{")
    while separator != "}":
        yield from reader.blanks()
        key = yield from json_string(reader)
        yield from reader.blanks()
        yield from reader.expect(":")
        yield from reader.blanks()
        if key in NAME_KEYS and not name:
            name = yield from json_string(reader)
            if known and name not in calls.tools:
                raise NotACall(f"{name!r} is no tool")
        elif key in ARGUMENT_KEYS and not begun and not arguments:
            streamed = name and (id or not id_last) and (yield from reader.peek()) == "{"
            if streamed:
                yield calls.begin(name, id)
                yield from stream_object(reader, calls.index)
                begun = True
            else:
                arguments = _object((yield from json_text(reader)))
        else:
            value = yield from json_text(reader)
            id = parsed(value) if key in ID_KEYS and value.startswith('"') else id
        yield from reader.blanks()
        separator = yield from reader.expect(",", "}")
    if begun:
        yield calls.end(reader)
    elif name and (arguments or not known):
        yield from calls.whole(reader, name, arguments or "{}", id)
    else:
        raise NotACall("an object without a name, or without arguments")


def _object(text: str) -> str:
    """Arguments that came as an object, as a string that holds one, or as null."""
    inner = parsed(text)
    if isinstance(inner, str):
        text, inner = inner, parsed(inner)
    if inner is None:
        return "{}"
    if not isinstance(inner, dict):
        raise NotACall(f"arguments are {text[:40]}: an object is expected")
    return text


@dataclass(frozen=True, slots=True)
class Named:
    """`section open header separator {…} close`: the name stands before the arguments."""

    open: str
    separator: str
    close: str = ""
    section: tuple[str, str] = ("", "")  # markers around all calls
    id_marker: str = ""  # between the name and an id, in the header
    header: Callable[[str], tuple[str, str]] = lambda text: (text, "")  # → name, id
    fenced: bool = False  # after the separator come the name, and the arguments as a block of code
    objects: bool = False  # instead, objects that say the name may come, which is Mistral's older way

    @property
    def opens(self) -> tuple[str, ...]:
        return tuple(marker for marker in (self.section[0], self.open) if marker)

    @property
    def markers(self) -> tuple[str, ...]:
        found = (*self.section, self.open, self.separator, self.close, self.id_marker)
        return tuple(marker for marker in found if marker)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        if opened != self.open:
            yield from reader.blanks()
            yield from reader.expect(self.open)
        while True:
            yield from self._call(reader, calls)
            if not self.section[0]:
                return
            yield from reader.blanks()
            if not (yield from reader.take(self.open)):
                yield from reader.take(self.section[1])
                return

    def _call(self, reader: Reader, calls: Calls) -> Parse[None]:
        if self.objects and (yield from reader.peek()) in ("[", "{"):
            yield from read_objects(reader, calls, id_last=True)
            return
        header, _ = yield from reader.through(self.separator)
        text, _, id = header.partition(self.id_marker) if self.id_marker else (header, "", "")
        name, other = self.header(text.strip())
        fence = ""
        if self.fenced and (name == "function" or not name):
            name, _ = yield from reader.through("\n")
            fence = yield from reader.take("```json", "```")
        yield calls.begin(name.strip(), id.strip() or other)
        yield from stream_object(reader, calls.index)
        yield calls.end(reader)
        yield from reader.blanks()
        if fence:
            yield from reader.take("```")
            yield from reader.blanks()
        if self.close:
            yield from reader.take(self.close)

    @property
    def trigger(self) -> str:
        return self.section[0] or self.open

    @property
    def block(self) -> Block:
        return Block(*self.section, between="") if self.section[0] else Block(self.open)

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        opened = self.open if self.section[0] else ""
        begin, end = f"{opened}{name}{self.separator}", self.close
        if self.fenced:
            begin, end = f"{opened}function{self.separator}{name}\n```json\n", f"\n```{end}"
        return [lark.text(begin), lark.json(schema), lark.text(end)]
