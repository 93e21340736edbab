"""Calls whose name stands before the arguments: `marker NAME separator {…}`."""

from collections.abc import Callable
from dataclasses import dataclass

from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.formats.objects import read_objects
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import stream_object
from llamina.chat.parse.reader import Parse, Reader


@dataclass(frozen=True, slots=True)
class Named:
    """`section open header separator {…} close`: the name stands before the arguments."""

    open: str
    separator: str
    close: str = ""
    section: tuple[str, str] = ("", "")  # markers around all calls
    id_marker: str = ""  # between the name and an id, in the header
    header: Callable[[str], tuple[str, str]] = lambda text: (text, "")  # the text before the separator → name, id
    fenced: bool = False  # the name comes after the separator, then the arguments as a fenced code block
    objects: bool = False  # JSON objects may come instead, as older Mistral models write them

    @property
    def opens(self) -> tuple[str, ...]:
        return tuple(marker for marker in (self.section[0], self.open) if marker)

    @property
    def markers(self) -> tuple[str, ...]:
        markers = (*self.section, self.open, self.separator, self.close, self.id_marker)
        return tuple(marker for marker in markers if marker)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        if opened != self.open:
            yield from reader.skip_whitespace()
            yield from reader.expect(self.open)
        while True:
            yield from self._call(reader, calls)
            if not self.section[0]:
                return
            yield from reader.skip_whitespace()
            if not (yield from reader.take(self.open)):
                yield from reader.take(self.section[1])
                return

    def _call(self, reader: Reader, calls: Calls) -> Parse[None]:
        if self.objects and (yield from reader.peek()) in ("[", "{"):
            yield from read_objects(reader, calls, id_last=True)
            return
        header, _ = yield from reader.through(self.separator)
        text, _, id = header.partition(self.id_marker) if self.id_marker else (header, "", "")
        name, own_id = self.header(text.strip())
        fence = ""
        if self.fenced and (name == "function" or not name):
            name, _ = yield from reader.through("\n")
            fence = yield from reader.take("```json", "```")
        yield calls.begin(name.strip(), id.strip() or own_id)
        yield from stream_object(reader, calls.index)
        yield calls.end(reader)
        yield from reader.skip_whitespace()
        if fence:
            yield from reader.take("```")
            yield from reader.skip_whitespace()
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
