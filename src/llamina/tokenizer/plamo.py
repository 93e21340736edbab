"""PLaMo 2's vocabulary, the model `plamo2`: the sequence of pieces with the best sum of scores (Viterbi)."""

import math

from llamina.errors import ModelFileError
from llamina.tokenizer.vocabulary import Mark, Vocabulary, byte_value

_UNKNOWN_COST = 10_000_000
_FORBIDDEN_COST = 20_000_000


class BestPath:
    """The cheapest path through the text, found from its end; characters without a piece become byte tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        byte_tokens = set(vocabulary.with_mark(Mark.BYTE))
        self._bytes = {byte_value(vocabulary.texts[token]): token for token in byte_tokens}
        if len(self._bytes) < 256:
            raise ModelFileError(f"the vocabulary has {len(self._bytes)} of 256 byte tokens: convert the model again")
        self._pieces: dict[str, tuple[int, int]] = {}
        for token, text in enumerate(vocabulary.texts):
            score = float(vocabulary.scores[token])
            cost = -_round(score * 1e4) if math.isfinite(score) else _FORBIDDEN_COST
            if token not in byte_tokens and cost < _FORBIDDEN_COST:
                self._pieces[text] = (cost, token)
        self._lengths: dict[str, list[int]] = {}
        for text in sorted(self._pieces, key=len, reverse=True):
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))

    def encode(self, text: str) -> list[int]:
        text = text.removeprefix("\ufeff")
        # From the end: the best cost from each place on, the length of the step, and its token.
        costs = [0] * (len(text) + 1)
        steps: list[tuple[int, int | None]] = [(0, None)] * len(text)
        for place in reversed(range(len(text))):
            costs[place], steps[place] = self._best_step(text, place, costs)
        ids: list[int] = []
        place = 0
        while place < len(text):
            length, token = steps[place]
            ids += [token] if token is not None else [self._bytes[b] for b in text[place].encode()]
            place += length
        return ids

    def _best_step(self, text: str, place: int, costs: list[int]) -> tuple[int, tuple[int, int | None]]:
        best: tuple[int, tuple[int, int | None]] | None = None
        for length in self._lengths.get(text[place], ()):
            piece = text[place : place + length]
            if len(piece) == length and piece in self._pieces:
                cost, token = self._pieces[piece]
                if best is None or cost + costs[place + length] < best[0]:
                    best = cost + costs[place + length], (length, token)
        unknown = _UNKNOWN_COST + costs[place + 1]
        return best if best is not None and best[0] <= unknown else (unknown, (1, None))


def _round(value: float) -> int:
    """Halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)
