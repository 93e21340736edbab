"""Answers taken apart as they are made: content, reasoning, calls."""

from collections.abc import Callable

from llamina.chat import harmony
from llamina.chat.calls import Calls, Tools, random_id
from llamina.chat.events import ChatEvent, Content, Reasoning, merged
from llamina.chat.formats import Format
from llamina.chat.reader import BLANKS, NotACall, Parse, Reader
from llamina.chat.styles import Style, read_object


class Parser:
    """Feed it text in any pieces; it tells what has become certain.

    Only what may still become a marker, or the name of a call, is held back. What is not a valid call is content.
    """

    def __init__(
        self,
        format: Format,
        tools: Tools | None = None,
        thinking: bool = False,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """`thinking` says that the prompt has opened the reasoning."""
        self._reader = Reader()
        self._run = _parse(self._reader, format, Calls(tools or Tools(), new_id), thinking)

    def push(self, text: str) -> list[ChatEvent]:
        """More of the answer."""
        self._reader.push(text)
        return self._drain()

    def finish(self) -> list[ChatEvent]:
        """No more will come: what was held back."""
        self._reader.ended = True
        return self._drain()

    def _drain(self) -> list[ChatEvent]:
        found = []
        for event in self._run:
            if event is None:
                break
            found.append(event)
        return merged(found)


def _parse(reader: Reader, format: Format, calls: Calls, thinking: bool) -> Parse[None]:
    if format.messages:
        yield from harmony.parse(reader, calls, format.reasoning is not None)
        return
    if format.reasoning is not None:
        yield from _reasoning(reader, format.reasoning, format.breaks, thinking)
    if not len(calls.tools):
        yield from reader.until((), Content)
        return
    styles = {opened: style for style in format.styles for opened in style.opens}
    fresh = format.bare  # an object without a marker may only be the first thing, or follow another
    while (yield from reader.peek()):
        if fresh:
            fresh = yield from _bare(reader, calls)
            continue
        opened = yield from reader.until(tuple(styles), Content)
        if opened and (yield from _attempt(reader, calls, styles[opened], opened)):
            fresh = format.bare
        reader.forget()


def _attempt(reader: Reader, calls: Calls, style: Style, opened: str) -> Parse[bool]:
    """Calls after a marker; if there are none, what looked so is content again."""
    start = reader.at - len(opened)
    calls.ended_at = 0
    try:
        yield from style.read(reader, opened, calls)
    except NotACall:
        if calls.is_open:
            yield calls.drop()
        begin, reader.at = (calls.ended_at, calls.ended_at) if calls.ended_at else (start, start + len(opened))
        yield Content(reader.text[begin : reader.at])
        return False
    yield from reader.blanks()
    return True


def _bare(reader: Reader, calls: Calls) -> Parse[bool]:
    """Objects without a marker around them, at the beginning."""
    start = reader.at
    calls.ended_at = 0
    try:
        while (yield from reader.peek()) in (*BLANKS, ";", ","):
            reader.at += 1
        if (yield from reader.peek()) != "{":
            raise NotACall("no object")
        yield from read_object(reader, calls, known=True, id_last=False)
    except NotACall:
        if calls.is_open:
            yield calls.drop()
        brace = len(reader.text[start:]) - len(reader.text[start:].lstrip(BLANKS + ";,"))
        reader.at = start + brace
        if reader.text[reader.at : reader.at + 1] == "{":
            reader.at += 1
        yield Content(reader.text[start : reader.at])
        return False
    yield from reader.blanks()
    reader.forget()
    return True


def _reasoning(reader: Reader, marks: tuple[str, str], breaks: tuple[str, ...], thinking: bool) -> Parse[None]:
    """Reasoning at the beginning, without the white space around it."""
    if not thinking:
        yield from reader.blanks()
        if not (yield from reader.take(marks[0])):
            reader.at = 0
            return
    yield from reader.blanks()
    word = yield from reader.until((marks[1], *breaks), _Trimmed())
    if word in breaks:
        reader.at -= len(word)
    yield from reader.blanks()
    reader.forget()


class _Trimmed:
    """Says reasoning without the white space at its end."""

    def __init__(self) -> None:
        self._blanks = ""

    def __call__(self, text: str) -> ChatEvent:
        text = self._blanks + text
        kept = text.rstrip(BLANKS)
        self._blanks = text[len(kept) :]
        return Reasoning(kept)
