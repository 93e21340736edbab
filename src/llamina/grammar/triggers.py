"""Where an answer that is free begins to follow a grammar."""

from collections.abc import Sequence
from dataclasses import dataclass

BETWEEN = " \t\r\n;,"  # may stand between two texts that follow the grammar


@dataclass(frozen=True, slots=True)
class Triggers:
    """The grammar holds from one of these texts on until nothing can follow any more; then the answer is free again."""

    anywhere: Sequence[str] = ()
    first: Sequence[str] = ()  # only as the first thing, or right after what has followed the grammar
    aside: Sequence[str] | None = None  # two markers: between them, at the beginning of the answer, nothing counts
    inside: bool = False  # the prompt has opened that already
    breaks: Sequence[str] = ()  # these end it, too

    def find(self, text: str, free: int, start: int) -> tuple[int, str] | None:
        """The first one, and where, that counts in the text from `free` on and that `start` did not complete before."""
        found = []
        for word in (*self.anywhere, *self.first):
            at = text.find(word, max(free, start - len(word) + 1))
            while at >= 0 and not self._counts(text, at, word, free):
                at = text.find(word, at + 1)
            found += [(at, word)] if at >= 0 else []
        return min(found, default=None)

    def _counts(self, text: str, at: int, word: str, free: int) -> bool:
        if self.aside is not None and (self.inside or text[:at].lstrip().startswith(self.aside[0])):
            closed = text.find(self.aside[1], 0, at)
            if closed < 0:
                return word in self.breaks
            free = max(free, closed + len(self.aside[1]))
        return word in self.anywhere or not text[free:at].strip(BETWEEN)
