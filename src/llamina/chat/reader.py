"""Text that arrives in pieces, read by parsers that wait for more when they need it.

A parser is a generator. It yields events, and None when what it has does not suffice to go on; it never looks at where
one piece ends and the next begins, so any split of a text gives the same events.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from llamina.chat.events import ChatEvent
from llamina.errors import LlaminaError

T = TypeVar("T")
Parse = Generator[ChatEvent | None, None, T]
BLANKS = " \t\r\n"
HEADER = 256  # characters that a header with a name may have
BLOCK = 1 << 20  # characters of a call that is read as a whole


class NotACall(LlaminaError):
    """What looked like a call cannot be one; the parser says it as content instead."""


class Reader:
    """The text so far, and how much of it is read."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def push(self, text: str) -> None:
        """More text."""
        self.text += text

    def forget(self) -> None:
        """What is read is not asked for again."""
        self.text, self.at = self.text[self.at :], 0

    def peek(self) -> Parse[str]:
        """The next character; at the end, an empty string."""
        while self.at == len(self.text):
            if self.ended:
                return ""
            yield None
        return self.text[self.at]

    def blanks(self) -> Parse[None]:
        """Skip white space."""
        while (char := (yield from self.peek())) and char in BLANKS:
            self.at += 1

    def take(self, *words: str) -> Parse[str]:
        """Read the one of these words that comes next (the longest of several); an empty string if none does."""
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
        """Read one of these words; anything else is not a call."""
        word = yield from self.take(*words)
        if not word:
            raise NotACall(f"{self.text[self.at : self.at + 20]!r} where {' or '.join(words)} is expected")
        return word

    def until(self, words: Sequence[str], say: Callable[[str], ChatEvent]) -> Parse[str]:
        """Say the text before the first of these words, and read the word; at the end, an empty string.

        What may become one of the words is held back.
        """
        while True:
            found = [(at, -len(word), word) for word in words if (at := self.text.find(word, self.at)) >= 0]
            if found:
                at, _, word = min(found)
                text, self.at = self.text[self.at : at], at + len(word)
                yield say(text)
                return word
            end = len(self.text) - (0 if self.ended else self._possible(words))
            text, self.at = self.text[self.at : end], end
            yield say(text)
            if self.ended:
                return ""
            yield None

    def through(self, *words: str, longest: int = HEADER) -> Parse[tuple[str, str]]:
        """The text before the first of these words, and the word; its absence is not a call."""
        while True:
            found = [(at, -len(word), word) for word in words if (at := self.text.find(word, self.at)) >= 0]
            end = min(found)[0] if found else len(self.text) - self._possible(words)
            if end - self.at > longest or (self.ended and not found):
                raise NotACall(f"{self.text[self.at : self.at + 40]!r} without {' or '.join(words)} after it")
            if found:
                at, _, word = min(found)
                text, self.at = self.text[self.at : at], at + len(word)
                return text, word
            yield None

    def _possible(self, words: Sequence[str]) -> int:
        """The longest unread tail that begins one of the words."""
        for n in range(min(max(map(len, words), default=1) - 1, len(self.text) - self.at), 0, -1):
            if any(word.startswith(self.text[-n:]) for word in words):
                return n
        return 0
