"""Calls in a known shape that is not the template's own: JSON in a code fence, bare JSON, `<tool_call>` tags.

Such a shape alone says little, so the text is a call only if it names an offered tool with arguments that fit the
tool's schema. Until that is certain its events are held back; as soon as it is impossible, the text is content.
"""

from collections.abc import Iterable
from typing import Any

from llamina.chat.events import CallArguments, CallBegin, CallEnd, ChatEvent
from llamina.chat.formats.families import QWEN_TAGS
from llamina.chat.formats.objects import read_object, read_objects
from llamina.chat.formats.tags import Tags
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.json_text import JsonValue, parsed
from llamina.chat.parse.reader import NotACall, Parse, Reader
from llamina.chat.tools import Tools
from llamina.chat.validate import fits, fits_member

FENCE = "```"
LANGUAGES = ("json", "JSON", "tool_call", "tool_calls")  # of a code fence, if it has one
LINE_STARTS = ("\n{", "\n[")
TAGS = {tag: Tags(tag, tag.replace("<", "</"), *QWEN_TAGS) for tag in ("<tool_call>", "<function_call>", "<tools>")}


def fallback_markers(opens: Iterable[str]) -> tuple[str, ...]:
    """Return the markers of fallback shapes, except those that open calls of the format itself."""
    return tuple(marker for marker in (FENCE, *LINE_STARTS, *TAGS) if marker not in opens)


def read_fallback(reader: Reader, opened: str, calls: Calls) -> Parse[None]:
    """Emit the calls after a fallback marker, or from a bracket on if `opened` is empty. Raises NotACall.

    All calls of a fence, a tag or a list must fit; otherwise none is emitted.
    """
    before, fit, events = calls.index, _Fit(calls.tools), []
    try:
        for event in _read(reader, opened, calls):
            if event is None:
                yield None
            else:
                fit.check(event)
                events.append(event)
    except NotACall:
        calls.index, calls.is_open, calls.ended_at = before, False, 0
        raise
    yield from events


def _read(reader: Reader, opened: str, calls: Calls) -> Parse[None]:
    if opened in TAGS:
        yield from TAGS[opened].read(reader, opened, calls)
    elif opened == FENCE:
        yield from reader.take(*LANGUAGES)
        yield from read_objects(reader, calls, offered=True, strict=True)
        yield from reader.skip_whitespace()
        if (yield from reader.peek()):
            yield from reader.expect(FENCE)
    elif (yield from reader.peek()) == "[":
        yield from read_objects(reader, calls, offered=True, strict=True)
    else:
        yield from read_object(reader, calls, offered=True, strict=True)


class _Fit:
    """Checks that calls name offered tools with arguments that fit, each argument as soon as it is complete."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._schema: dict[str, Any] = {}
        self._json, self._text = JsonValue(), ""

    def check(self, event: ChatEvent) -> None:
        """Raises NotACall if no call that fits can have this event."""
        match event:
            case CallBegin(_, _, name):
                if name not in self._tools:
                    raise NotACall(f"{name!r} is not an offered tool")
                self._schema, self._json, self._text = self._tools.parameters(name), JsonValue(), ""
            case CallArguments(_, text):
                for char in text:
                    self._json.push(char)
                    if char == "," and self._json.at_key:
                        self._check_members(self._text)
                    self._text += char
            case CallEnd():
                if not fits(parsed(self._text), self._schema):
                    raise NotACall("the arguments do not fit the tool's schema")

    def _check_members(self, text: str) -> None:
        *_, (key, value) = parsed(text + "}").items()
        if not fits_member(key, value, self._schema):
            raise NotACall(f"the argument {key!r} does not fit the tool's schema")
