"""The parser of answers: text in, events of content, reasoning and tool calls out."""

from collections.abc import Callable

from llamina.chat.events import ChatEvent, Content, Reasoning, merged
from llamina.chat.formats import Format, harmony
from llamina.chat.formats.fallback import FENCE, LINE_STARTS, fallback_markers, read_fallback
from llamina.chat.formats.objects import read_object
from llamina.chat.parse.calls import Calls, random_id
from llamina.chat.parse.reader import WHITESPACE, NotACall, Parse, Reader
from llamina.chat.tools import Tools

BETWEEN_OBJECTS = WHITESPACE + ";,"


class Parser:
    """Takes text in pieces of any size and returns the events that have become certain.

    Only text that may still become a marker or the name of a call is held back. What is not a valid call is content.
    """

    def __init__(
        self,
        format: Format,
        tools: Tools | None = None,
        thinking: bool = False,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """`thinking`: the prompt has opened the reasoning."""
        self._reader = Reader()
        self._events = _parse(self._reader, format, Calls(tools or Tools(), new_id), thinking)

    def push(self, text: str) -> list[ChatEvent]:
        """Take more of the answer and return the events it completes."""
        self._reader.push(text)
        return self._drain()

    def finish(self) -> list[ChatEvent]:
        """Declare the end of the answer and return the events of what was held back."""
        self._reader.ended = True
        return self._drain()

    def _drain(self) -> list[ChatEvent]:
        events = []
        for event in self._events:
            if event is None:
                break
            events.append(event)
        return merged(events)


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
    fallbacks = fallback_markers(styles)
    fresh = True  # at the beginning, or after a call: JSON may come without a marker
    in_code = False  # inside a fenced code block, where JSON at the beginning of a line is no call
    while (yield from reader.peek()):
        if fresh:
            fresh = yield from _bare(reader, calls, format.bare)
            continue
        markers = [marker for marker in (*styles, *fallbacks) if not (in_code and marker in LINE_STARTS)]
        opened = yield from reader.until(markers, Content)
        if opened == FENCE and in_code:
            yield Content(opened)
            in_code = False
        elif opened in LINE_STARTS:  # only the line break is read: other markers may begin with the bracket
            reader.at -= 1
            yield Content(opened[0])
            fresh = yield from _attempt(reader, calls, "", read_fallback)
        elif opened:
            read = styles[opened].read if opened in styles else read_fallback
            fresh = yield from _attempt(reader, calls, opened, read)
            in_code = in_code or (opened.startswith(FENCE) and not fresh)
        reader.forget()


def _attempt(
    reader: Reader, calls: Calls, opened: str, read: Callable[[Reader, str, Calls], Parse[None]]
) -> Parse[bool]:
    """Emit the calls after a marker and return True; if there are none, emit the marker as content and return False."""
    start = reader.at - len(opened)
    calls.ended_at = 0
    try:
        yield from read(reader, opened, calls)
    except NotACall:
        if calls.is_open:
            yield calls.drop()
        begin, reader.at = (calls.ended_at, calls.ended_at) if calls.ended_at else (start, start + len(opened))
        yield Content(reader.text[begin : reader.at])
        return False
    yield from reader.skip_whitespace()
    return True


def _bare(reader: Reader, calls: Calls, own: bool) -> Parse[bool]:
    """Emit the calls of JSON without a marker and return True; if it is none, leave it unread and return False.

    `own`: the format itself writes calls so, as objects; otherwise they must fit as in other fallback shapes.
    """
    start = reader.at
    calls.ended_at = 0
    while (char := (yield from reader.peek())) and char in (BETWEEN_OBJECTS if own else WHITESPACE):
        reader.at += 1
    bracket = reader.at
    try:
        if own and char == "{":
            yield from read_object(reader, calls, offered=True)
        elif char and char in "{[":
            yield from read_fallback(reader, "", calls)
        else:
            raise NotACall("no JSON")
    except NotACall:
        if calls.is_open:
            yield calls.drop()
        reader.at = bracket
        yield Content(reader.text[start:bracket])
        return False
    yield from reader.skip_whitespace()
    reader.forget()
    return True


def _reasoning(reader: Reader, markers: tuple[str, str], breaks: tuple[str, ...], thinking: bool) -> Parse[None]:
    """Emit the reasoning at the beginning of an answer, without the whitespace around it."""
    opening, closing = markers
    if not thinking:
        yield from reader.skip_whitespace()
        if not (yield from reader.take(opening)):
            reader.at = 0
            return
    yield from reader.skip_whitespace()
    marker = yield from reader.until((closing, *breaks), _Trimmed())
    if marker in breaks:
        reader.at -= len(marker)
    yield from reader.skip_whitespace()
    reader.forget()


class _Trimmed:
    """Makes events of reasoning; whitespace is held back until text follows it."""

    def __init__(self) -> None:
        self._whitespace = ""

    def __call__(self, text: str) -> ChatEvent:
        text = self._whitespace + text
        trimmed = text.rstrip(WHITESPACE)
        self._whitespace = text[len(trimmed) :]
        return Reasoning(trimmed)
