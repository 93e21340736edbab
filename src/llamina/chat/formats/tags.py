"""Calls with a tag for each argument, as Qwen3-Coder, MiniMax and GLM write them."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from llamina.chat.events import CallArguments, ChatEvent
from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.formats.objects import read_objects
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import parsed
from llamina.chat.parse.reader import MAX_BLOCK, NotACall, Parse, Reader
from llamina.chat.validate import is_type


@dataclass(frozen=True, slots=True)
class Tags:
    """`open <function=NAME> <parameter=KEY>VALUE</parameter> … </function> close`.

    A value is text; that of a parameter whose type is not string is JSON.
    """

    open: str
    close: str
    function: tuple[str, str, str]  # before and after the name, at the end
    parameter: tuple[str, str, str]  # before and after the key, after the value
    open_optional: bool = False  # some models leave `open` out
    typed: str = ""  # stands between a key and `true` (the value is a string) or `false` (it is JSON)
    blank: str = "\n"  # whitespace between the tags, in the grammar

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, self.function[0]) if self.open_optional else (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(tag for tag in (self.open, self.close, *self.function, *self.parameter) if len(tag) > 2)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        inside = opened != self.open  # of a function's tag
        yield from reader.skip_whitespace()
        if not inside and (yield from reader.peek()) in ("[", "{"):
            yield from read_objects(reader, calls)
        else:
            while inside or (yield from reader.take(self.function[0])):
                yield from self._call(reader, calls, offered=inside)
                yield from reader.skip_whitespace()
                inside = False
            if calls.ended_at == 0:
                raise NotACall(f"no {self.function[0]} after {self.open}")
        yield from reader.skip_whitespace()
        yield from reader.take(self.close)

    def _call(self, reader: Reader, calls: Calls, offered: bool) -> Parse[None]:
        _, after, end = self.function
        name, _ = yield from reader.through(after)
        if offered and name not in calls.tools:
            raise NotACall(f"{name!r} is not an offered tool")
        yield calls.begin(name)
        yield CallArguments(calls.index, "{")
        separator = ""
        yield from reader.skip_whitespace()
        while (yield from reader.expect(self.parameter[0], end)) != end:
            key, _ = yield from reader.through(self.parameter[1])
            key, _, text = key.partition(self.typed) if self.typed else (key, "", "")
            types = {"string"} if text == "true" else calls.tools.types(name, key) or ({"any"} if text else set())
            yield CallArguments(calls.index, f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            yield from read_value(reader, calls, types, self.parameter[2])
            yield from reader.skip_whitespace()
            separator = ", "
        yield CallArguments(calls.index, "}")
        yield calls.end(reader)

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def block(self) -> Block:
        return Block(f"{self.open}{self.blank}", self.close, None if self.open_optional else "")

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        before, after, end = self.function
        opened, after_key, done = self.parameter
        blank = self.blank
        pad = "" if self.typed else blank
        parameters = [
            (
                needed,
                [
                    lark.text(f"{opened}{key}{self._type(inner)}{after_key}{pad}"),
                    *lark.plain(inner, f"{pad}{done}{blank}"),
                ],
            )
            for key, inner, needed in lark.properties(schema)
        ]
        return [
            lark.text(f"{before}{name}{after}{blank}"),
            *(lark.maybe(parts, needed) for needed, parts in parameters),
            lark.text(f"{end}{blank}"),
        ]

    def _type(self, schema: Schema) -> str:
        return f"{self.typed}{json.dumps(schema.get('type') == 'string')}" if self.typed else ""


def read_value(reader: Reader, calls: Calls, types: set[str], close: str) -> Parse[None]:
    """Emit the value of a parameter as JSON, up to the tag that closes it. Raises NotACall if the text ends before.

    A line break at either end is not part of the value.
    """
    yield from reader.take("\n")
    if types <= {"string"}:
        yield CallArguments(calls.index, '"')
        word = yield from reader.until(["\n" + close, close], _string(calls.index))
        if not word:
            raise NotACall(f"the text ends before {close}")
        yield CallArguments(calls.index, '"')
        return
    text, _ = yield from reader.through("\n" + close, close, longest=MAX_BLOCK)
    yield CallArguments(calls.index, _json(text, types))


def _string(index: int) -> Callable[[str], ChatEvent]:
    return lambda text: CallArguments(index, json.dumps(text, ensure_ascii=False)[1:-1])


def _json(text: str, types: set[str]) -> str:
    """Return the text as it is if it is JSON of the right type, else as a JSON string."""
    try:
        is_json = is_type(parsed(text), types) or "string" not in types
    except NotACall:
        is_json = False
    return text.strip() if is_json else json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class KeyValueTags:
    """GLM's style: `<tool_call>NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … </tool_call>`."""

    open: str = "<tool_call>"
    close: str = "</tool_call>"

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from reader.skip_whitespace()
        if (yield from reader.peek()) in ("[", "{"):
            yield from read_objects(reader, calls)
            yield from reader.skip_whitespace()
            yield from reader.take(self.close)
            return
        name, tag = yield from reader.through("<arg_key>", self.close)
        name = name.strip()
        yield calls.begin(name)
        yield CallArguments(calls.index, "{")
        separator = ""
        while tag != self.close:
            key, _ = yield from reader.through("</arg_key>")
            yield from reader.skip_whitespace()
            yield from reader.expect("<arg_value>")
            yield CallArguments(calls.index, f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            yield from read_value(reader, calls, calls.tools.types(name, key), "</arg_value>")
            yield from reader.skip_whitespace()
            tag = yield from reader.expect("<arg_key>", self.close)
            separator = ", "
        yield CallArguments(calls.index, "}")
        yield calls.end(reader)

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def block(self) -> Block:
        return Block(self.open, self.close)

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        parameters = [
            (needed, [lark.text(f"<arg_key>{key}</arg_key>\n<arg_value>"), *lark.plain(inner, "</arg_value>\n")])
            for key, inner, needed in lark.properties(schema)
        ]
        return [
            lark.text(f"{name}\n"),
            *(lark.maybe(parts, needed) for needed, parts in parameters),
        ]
