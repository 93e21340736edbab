"""Calls as JSON objects, `{"name": …, "arguments": {…}}`, between markers or in a list."""

import json
from dataclasses import dataclass

from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import json_string, json_text, parsed, stream_object
from llamina.chat.parse.reader import NotACall, Parse, Reader

NAME_KEYS = ("name", "tool_name", "function_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
ID_KEYS = ("id", "tool_call_id", "call_id")
CALL_KEYS = tuple(json.dumps(key) for key in (*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, "type"))


@dataclass(frozen=True, slots=True)
class Objects:
    """`open {"name": …, "arguments": {…}} close`, or a list of such objects."""

    open: str
    close: str
    keys: tuple[str, str] = ("name", "arguments")  # in the grammar; all of NAME_KEYS and ARGUMENT_KEYS are read
    listed: bool = False  # a list, in the grammar; both are read
    offered: bool = False  # only names of offered tools are calls: the marker alone says little
    id_last: bool = False  # an id may come after the arguments, which are held back until it comes
    blank: str = "\n"  # whitespace inside the markers, in the grammar

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from read_objects(reader, calls, offered=self.offered, id_last=self.id_last)
        yield from reader.skip_whitespace()
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


def read_objects(
    reader: Reader, calls: Calls, offered: bool = False, id_last: bool = False, strict: bool = False
) -> Parse[None]:
    """Emit the calls of consecutive objects, or of a list of them. Raises NotACall; options as for `read_object`."""
    yield from reader.skip_whitespace()
    if not (yield from reader.take("[")):
        yield from read_object(reader, calls, offered, id_last, strict)
        yield from reader.skip_whitespace()
        while (yield from reader.peek()) == "{":
            yield from read_object(reader, calls, offered, id_last, strict)
            yield from reader.skip_whitespace()
        return
    while True:
        yield from reader.skip_whitespace()
        yield from read_object(reader, calls, offered, id_last, strict)
        yield from reader.skip_whitespace()
        if (yield from reader.expect(",", "]")) == "]":
            return


def read_object(
    reader: Reader, calls: Calls, offered: bool = False, id_last: bool = False, strict: bool = False
) -> Parse[None]:
    """Emit the call of `{"name": …, "arguments": {…}}`, in any order of its keys. Raises NotACall.

    `offered`: the name must be that of an offered tool. `id_last`: the id may come after the arguments.
    `strict`: there must be no keys but those of a call; otherwise others are ignored.
    """
    name = id = arguments = ""
    begun = False
    separator = yield from reader.expect("{")
    while separator != "}":
        yield from reader.skip_whitespace()
        key = json.loads((yield from reader.expect(*CALL_KEYS))) if strict else (yield from json_string(reader))
        yield from reader.skip_whitespace()
        yield from reader.expect(":")
        yield from reader.skip_whitespace()
        if key in NAME_KEYS and not name:
            name = (yield from _offered_name(reader, calls)) if offered else (yield from json_string(reader))
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
        yield from reader.skip_whitespace()
        separator = yield from reader.expect(",", "}")
    if begun:
        yield calls.end(reader)
    elif name and (arguments or not offered):
        yield from calls.whole(reader, name, arguments or "{}", id)
    else:
        raise NotACall("an object without a name, or without arguments")


def _offered_name(reader: Reader, calls: Calls) -> Parse[str]:
    """Return the name of a tool, a JSON string. Raises NotACall as soon as it cannot become that of an offered one."""
    names = [json.dumps(name, ensure_ascii=ascii) for name in calls.tools for ascii in (True, False)]
    name: str = json.loads((yield from reader.expect(*names)))
    return name


def _object(text: str) -> str:
    """Return arguments as the text of an object, given as one, as a string that holds one, or as null."""
    value = parsed(text)
    if isinstance(value, str):
        text, value = value, parsed(value)
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise NotACall(f"arguments are {text[:40]}: must be an object")
    return text
