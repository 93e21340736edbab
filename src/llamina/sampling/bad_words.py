"""Words that are not generated: the last token of each is banned where those before it have just been said."""

from collections.abc import Iterable, Sequence

import numpy as np

from llamina.sampling.candidates import Floats
from llamina.tokenizer import Tokenizer

Tokens = tuple[int, ...]


def word_tokens(words: Iterable[str], tokenizer: Tokenizer) -> list[Tokens]:
    """How each word is written in the middle of a text, by itself and after a space, in the vocabulary's own way."""
    spellings = [spelling for word in words for spelling in (word.lstrip(" "), " " + word.lstrip(" "))]
    return list(dict.fromkeys(tuple(tokenizer.encode(spelling, continued=True)) for spelling in spellings))


class BadWords:
    """Bans the ends of words of several tokens. Tokens before the position `start` are the prompt's, and begin none."""

    def __init__(self, words: Iterable[Tokens], start: int) -> None:
        self._start = start
        self._ends: dict[int, dict[Tokens, list[int]]] = {}  # by how many tokens come before it, and which
        for word in words:
            self._ends.setdefault(len(word) - 1, {}).setdefault(word[:-1], []).append(word[-1])

    def __bool__(self) -> bool:
        return bool(self._ends)

    def ban(self, logits: Floats, history: Sequence[int], position: int) -> None:
        """Make the tokens impossible that would complete a word after `history`."""
        for length, ends in self._ends.items():
            if position - length >= self._start and (banned := ends.get(tuple(history[-length:]))):
                logits[banned] = -np.inf
