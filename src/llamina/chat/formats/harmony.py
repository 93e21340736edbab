"""The messages of gpt-oss: `<|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|><|start|>assistant…`.

The prompt ends with `<|start|>assistant`, so an answer begins inside a header.
"""

import re
from dataclasses import dataclass

from llamina.chat.events import Content, Reasoning
from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import stream_object
from llamina.chat.parse.reader import NotACall, Parse, Reader

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
HEADERS = (START, CHANNEL, CONSTRAIN, MESSAGE, " to=")
ANALYSIS = "analysis"
CALL = f"{CHANNEL}commentary to=functions."  # as calls are written; other channels are read, too
REASONING = (
    f"{CHANNEL}{ANALYSIS}{MESSAGE}",
    f"{ENDS[0]}{START}assistant",
)  # around a reasoning message that another follows
_FUNCTION = re.compile(r"to=functions\.([^\s<]+)")
_OTHER = re.compile(r"to=(?!assistant\b)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Harmony:
    """Calls are messages to `functions.NAME`."""

    @property
    def opens(self) -> tuple[str, ...]:
        return HEADERS

    @property
    def markers(self) -> tuple[str, ...]:
        return (START, CHANNEL, CONSTRAIN, MESSAGE, ENDS[0])

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from read_message(reader, calls, opened, reasoning=True)

    @property
    def trigger(self) -> str:
        return CALL

    @property
    def block(self) -> Block:
        return Block(CALL)

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        return [lark.text(f"{name} {CONSTRAIN}json{MESSAGE}"), lark.json(schema)]


def parse(reader: Reader, calls: Calls, reasoning: bool) -> Parse[None]:
    """Emit the events of all messages of an answer; text that is no message is content."""
    while (yield from reader.peek()):
        start = calls.ended_at = reader.at
        opened = yield from reader.take(*HEADERS)
        try:
            if not opened:
                raise NotACall("no header")
            yield from read_message(reader, calls, opened, reasoning)
        except NotACall:
            if calls.is_open:
                yield calls.drop()
            reader.at = max(start + len(opened), calls.ended_at)
            yield Content(reader.text[start : reader.at])
            yield from _plain(reader)
        reader.forget()


def _plain(reader: Reader) -> Parse[None]:
    """Emit text that is no message, up to the beginning of one."""
    marker = yield from reader.until((START, CHANNEL), Content)
    reader.at -= len(marker)


def read_message(reader: Reader, calls: Calls, opened: str, reasoning: bool) -> Parse[None]:
    """Emit one message, from after `opened`, the beginning of its header. Raises NotACall.

    `reasoning`: the analysis channel is reasoning; otherwise it is content, with its header.
    """
    start = reader.at - len(opened)
    if opened != MESSAGE:
        yield from reader.through(MESSAGE)
    header = reader.text[start : reader.at]
    function, channels = _FUNCTION.search(header), _CHANNEL.findall(header)
    is_reasoning = channels[-1:] == [ANALYSIS]
    if function and len(calls.tools):
        yield calls.begin(function[1])
        yield from stream_object(reader, calls.index)
        yield calls.end(reader)
        yield from reader.skip_whitespace()
        yield from reader.take(*ENDS)
    elif _OTHER.search(header) or (is_reasoning and not reasoning):  # content with its header: nothing is lost
        yield Content(header)
        yield Content((yield from _body(reader, Content)))
    else:
        yield from _body(reader, Reasoning if is_reasoning else Content)


def _body(reader: Reader, event: type[Content] | type[Reasoning]) -> Parse[str]:
    """Emit the text of a message; return the marker that ends it, if that is the message's own."""
    marker = yield from reader.until((*ENDS, START), event)
    if marker == START:
        reader.at -= len(marker)
        return ""
    return marker
