"""Text that arrives in pieces, read by generators that wait when they need more of it.

A parser is a generator. It yields events, and None when the text so far does not suffice to go on; it never looks at
where one piece ends and the next begins, so any split of a text gives the same events.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from llamina.chat.events import ChatEvent
from llamina.errors import LlaminaError

T = TypeVar("T")
Parse = Generator[ChatEvent | None, None, T]
WHITESPACE = " \t\r\n"
MAX_HEADER = 256  # characters of a header with a name
MAX_BLOCK = 1 << 20  # characters of a call that is read as a whole


class NotACall(LlaminaError):
    """The text is no call after all; the parser emits it as content."""


class Reader:
    """The text so far (`text`), the read position in it (`at`), and whether more can come (`ended`)."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def push(self, text: str) -> None:
        """Append text."""
        self.text += text

    def forget(self) -> None:
        """Drop the text before the read position, which becomes 0."""
        self.text, self.at = self.text[self.at :], 0

    def peek(self) -> Parse[str]:
        """Return the next character without reading it; an empty string at the end."""
        while self.at == len(self.text):
            if self.ended:
                return ""
            yield None
        return self.text[self.at]

    def skip_whitespace(self) -> Parse[None]:
        """Read spaces, tabs and line breaks."""
        while (char := (yield from self.peek())) and char in WHITESPACE:
            self.at += 1

    def take(self, *words: str) -> Parse[str]:
        """Read the word that comes next, the longest if several do, and return it; an empty string if none does."""
        longest = max(map(len, words))
        while True:
            rest = self.text[self.at : self.at + longest]
            if self.ended or not any(len(rest) < len(word) and word.startswith(rest) for word in words):
                break
            yield None
        word = max((word for word in words if rest.startswith(word)), key=len, default="")
        self.at += len(word)
        return word

    def expect(self, *words: str) -> Parse[str]:
        """Read one of the words and return it. Raises NotACall if none comes next."""
        word = yield from self.take(*words)
        if not word:
            raise NotACall(f"{self.text[self.at : self.at + 20]!r} where {' or '.join(words)} is expected")
        return word

    def until(self, markers: Sequence[str], event: Callable[[str], ChatEvent]) -> Parse[str]:
        """Emit the text before the first marker, read the marker and return it; an empty string at the end.

        Of markers that begin at one place the longest counts. Text that may become a marker is held back.
        """
        while True:
            start, marker = self._find(markers)
            text, self.at = self.text[self.at : start], start + len(marker)
            yield event(text)
            if marker or self.ended:
                return marker
            yield None

    def through(self, *markers: str, longest: int = MAX_HEADER) -> Parse[tuple[str, str]]:
        """Return the text before the first marker, and the marker.

        Raises NotACall if the text ends before a marker, or has more than `longest` characters.
        """
        while True:
            start, marker = self._find(markers)
            if start - self.at > longest or (self.ended and not marker):
                raise NotACall(f"{self.text[self.at : self.at + 40]!r} without {' or '.join(markers)} after it")
            if marker:
                text, self.at = self.text[self.at : start], start + len(marker)
                return text, marker
            yield None

    def _find(self, markers: Sequence[str]) -> tuple[int, str]:
        """The place of the first marker, and the marker; no marker: the place up to which none can begin."""
        places = [(at, -len(marker), marker) for marker in markers if (at := self.text.find(marker, self.at)) >= 0]
        start, _, marker = min(places, default=(len(self.text), 0, ""))
        for at in range(max(self.at, len(self.text) - max(map(len, markers), default=1) + 1), len(self.text)):
            tail = self.text[at:]
            if at > start or self.ended:
                break
            if any(len(tail) < len(longer) and longer.startswith(tail) for longer in markers):
                return at, ""  # it may become a marker that begins earlier, or that is longer
        return start, marker
