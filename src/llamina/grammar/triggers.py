"""Triggers: texts at which an unconstrained answer begins to follow a grammar."""

from collections.abc import Sequence
from dataclasses import dataclass

BETWEEN = " \t\r\n;,"  # may stand between two constrained parts


@dataclass(frozen=True, slots=True)
class Triggers:
    """The answer follows the grammar from a trigger on until nothing may follow; then it is unconstrained again."""

    anywhere: Sequence[str] = ()
    first: Sequence[str] = ()  # only at the beginning of the answer, or right after a constrained part
    aside: Sequence[str] | None = None  # markers around reasoning at the beginning, in which no trigger counts
    inside: bool = False  # the prompt has opened the reasoning
    breaks: Sequence[str] = ()  # triggers that end the reasoning, too

    def find(self, text: str, free: int, start: int) -> tuple[int, str] | None:
        """Return the place and text of the first trigger in `text`; None if there is none.

        It must begin at `free`, the end of the last constrained part, or later, and end after `start`.
        """
        places = []
        for word in (*self.anywhere, *self.first):
            at = text.find(word, max(free, start - len(word) + 1))
            while at >= 0 and not self._counts(text, at, word, free):
                at = text.find(word, at + 1)
            places += [(at, word)] if at >= 0 else []
        return min(places, default=None)

    def _counts(self, text: str, at: int, word: str, free: int) -> bool:
        if self.aside is not None and (self.inside or text[:at].lstrip().startswith(self.aside[0])):
            closed = text.find(self.aside[1], 0, at)
            if closed < 0:
                return word in self.breaks
            free = max(free, closed + len(self.aside[1]))
        return word in self.anywhere or not text[free:at].strip(BETWEEN)
