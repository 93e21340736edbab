"""The messages of gpt-oss: `<|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|><|start|>assistant…`.

The prompt ends with `<|start|>assistant`, so an answer begins inside of a header.
"""

import re
from dataclasses import dataclass

from llamina.chat.calls import Calls
from llamina.chat.events import Content, Reasoning
from llamina.chat.json_text import stream_object
from llamina.chat.lark import Lark, Schema
from llamina.chat.reader import NotACall, Parse, Reader
from llamina.chat.styles import Block

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
HEADS = (START, CHANNEL, CONSTRAIN, MESSAGE, " to=")
THOUGHTS = "analysis"
CALL = f"{CHANNEL}commentary to=functions."  # as calls are written; others are understood
REASONING = (f"{CHANNEL}{THOUGHTS}{MESSAGE}", f"{ENDS[0]}{START}assistant")  # around a message before another
_FUNCTION = re.compile(r"to=functions\.([^\s<]+)")
_OTHER = re.compile(r"to=(?!assistant\b)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Harmony:
    """Calls are messages to `functions.NAME`."""

    @property
    def opens(self) -> tuple[str, ...]:
        return HEADS

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
    """All messages of an answer."""
    while (yield from reader.peek()):
        start = calls.ended_at = reader.at
        opened = yield from reader.take(*HEADS)
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
    """Text that is no message, up to the beginning of one."""
    word = yield from reader.until((START, CHANNEL), Content)
    reader.at -= len(word)


def read_message(reader: Reader, calls: Calls, opened: str, reasoning: bool) -> Parse[None]:
    """One message, from after the beginning of its header."""
    start = reader.at - len(opened)
    if opened != MESSAGE:
        yield from reader.through(MESSAGE)
    header = reader.text[start : reader.at]
    function, channels = _FUNCTION.search(header), _CHANNEL.findall(header)
    thoughts = channels[-1:] == [THOUGHTS]
    if function and len(calls.tools):
        yield calls.begin(function[1])
        yield from stream_object(reader, calls.index)
        yield calls.end(reader)
        yield from reader.blanks()
        yield from reader.take(*ENDS)
    elif _OTHER.search(header) or (thoughts and not reasoning):  # not asked for, and not lost
        yield Content(header)
        yield Content((yield from _body(reader, Content)))
    else:
        yield from _body(reader, Reasoning if thoughts else Content)


def _body(reader: Reader, say: type[Content] | type[Reasoning]) -> Parse[str]:
    word = yield from reader.until((*ENDS, START), say)
    if word == START:
        reader.at -= len(word)
        return ""
    return word
