"""Splitting a text at the special tokens that are written in it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from llamina.tokenizer.vocabulary import Mark, Vocabulary

Fragment = str | int

_SPACES = " \t\n\v\f\r"


class Partition:
    """Finds special tokens in a text: the longest token first, wherever it stands, then the next."""

    def __init__(self, vocabulary: Vocabulary, parse_special: bool) -> None:
        hidden = Mark(0) if parse_special else Mark.CONTROL | Mark.UNKNOWN
        tokens = vocabulary.with_mark(Mark.CONTROL | Mark.USER_DEFINED | Mark.UNKNOWN)
        self._marks = {t: Mark(int(vocabulary.marks[t])) for t in tokens if not vocabulary.has(t, hidden)}
        self._texts = {vocabulary.texts[t]: t for t in self._marks}
        # A look for each of thousands of special tokens would take long: those that begin with the two characters there
        self._lengths: dict[str, set[int]] = defaultdict(set)
        for text in self._texts:
            self._lengths[text[:2]].add(len(text))
        heads = sorted({text[0] for text in self._texts})
        self._heads = re.compile(f"[{''.join(map(re.escape, heads))}]") if heads else None

    def split(self, text: str) -> list[Fragment]:
        """The text as fragments of plain text and ids of special tokens."""
        fragments: list[Fragment] = [text] if text else []
        for special in sorted(self._present(text), key=lambda t: (-len(t.encode("utf-8", "replace")), self._texts[t])):
            fragments = list(self._cut(fragments, special))
        return fragments

    def _present(self, text: str) -> set[str]:
        found: set[str] = set()
        for match in self._heads.finditer(text) if self._heads else ():
            start = match.start()
            # A token of one letter stands under that letter alone.
            for head in (text[start], text[start : start + 2]):
                for length in self._lengths.get(head, ()):
                    if (piece := text[start : start + length]) in self._texts:
                        found.add(piece)
        return found

    def _cut(self, fragments: Sequence[Fragment], special: str) -> Iterator[Fragment]:
        token = self._texts[special]
        for fragment in fragments:
            if isinstance(fragment, int):
                yield fragment
                continue
            yield from self._cut_text(fragment, special, token, self._marks[token])

    def _cut_text(self, text: str, special: str, token: int, mark: Mark) -> Iterator[Fragment]:
        while special in text:
            left, _, text = text.partition(special)
            left = left.rstrip(_SPACES) if mark & Mark.LSTRIP else left
            if left:
                yield left
            yield token
            text = text.lstrip(_SPACES) if mark & Mark.RSTRIP else text
        if text:
            yield text
