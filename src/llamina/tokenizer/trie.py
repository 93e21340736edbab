"""The two vocabularies matched from the text itself: `rwkv` (longest match) and `plamo2` (best path)."""

import math
import re

from llamina.errors import ModelFileError
from llamina.tokenizer.vocabulary import Mark, Vocabulary, byte_value

_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_ESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}

_UNKNOWN_COST = 10_000_000
_FORBIDDEN_COST = 20_000_000


def unescape(text: str) -> bytes:
    """The bytes of an RWKV token, which GGUF writes as a Python literal without quotes."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(byte, text.encode("utf-8", "surrogateescape"))


class LongestMatch:
    """RWKV: at each byte the longest token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = {unescape(text): token for token, text in enumerate(vocabulary.texts)}
        self._unknown = vocabulary.special.get("unk")
        lengths: dict[bytes, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        ids: list[int] = []
        place = 0
        while place < len(data):
            token, length = self._longest(data, place)
            ids += [] if token is None else [token]
            place += length
        return ids

    def _longest(self, data: bytes, place: int) -> tuple[int | None, int]:
        for head in (data[place : place + 2], data[place : place + 1]):
            for length in self._lengths.get(head, ()):
                token = self._ids.get(data[place : place + length])
                if token is not None and place + length <= len(data):
                    return token, length
        return self._unknown, 1


class BestPath:
    """PLaMo-2: the sequence of pieces with the best sum of scores; letters without a piece become bytes."""

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
