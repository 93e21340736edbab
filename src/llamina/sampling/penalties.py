"""Penalties: for tokens that occurred (repeat, frequency, presence), and for prolonging a repetition (DRY)."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from llamina.sampling.candidates import Candidates
from llamina.sampling.params import Sampling
from llamina.tokenizer import Tokenizer


def penalize(c: Candidates, params: Sampling) -> None:
    """Lower the logits of the last `repeat_last_n` tokens, once for occurring and again for each occurrence."""
    counts = Counter(recent(c.history, params.repeat_last_n))
    tokens, times = np.array([*counts], np.intp), np.array([*counts.values()], np.float32)
    at, present = c.indices(tokens)
    logits, repeat = c.logits[at], np.float32(params.repeat_penalty)
    logits = np.where(logits > 0, logits / repeat, logits * repeat)
    c.logits[at] = logits - (times[present] * params.frequency_penalty + params.presence_penalty)
    c.ordered = False


def recent(history: Sequence[int], n: int) -> Sequence[int]:
    """Return the last n tokens; all of them if n is negative."""
    return history if n < 0 else history[max(0, len(history) - n) :]


Breakers = dict[int, list[list[int]]]  # first token of a breaker → the tokens that must follow, in each spelling


class Dry:
    """DRY ("don't repeat yourself"): the penalty of a token grows with the length of the repetition it prolongs."""

    def __init__(self, params: Sampling, breakers: Breakers) -> None:
        self._params = params
        self._breakers = breakers
        # The penalty must be finite in float32, so the length is capped.
        steps = 88.7228391 / math.log(params.dry_base) if params.dry_base > 1.000001 else math.inf
        self._max_length = params.dry_allowed_length + (int(steps) if steps < 1 << 31 else 1 << 31)

    def __call__(self, c: Candidates) -> None:
        params = self._params
        newest_first = np.array(recent(c.history, params.dry_penalty_last_n), np.intp)[::-1]
        limit = self._limit(newest_first.tolist())
        if limit < params.dry_allowed_length or len(newest_first) <= params.dry_allowed_length:
            return
        repeated = self._repeated(newest_first, min(limit, self._max_length))
        at, present = c.indices(np.array([*repeated], np.intp))
        lengths = np.array([*repeated.values()], np.float64)[present]
        penalties = params.dry_multiplier * np.float_power(params.dry_base, lengths - params.dry_allowed_length)
        c.logits[at] -= penalties.astype(np.float32)
        c.ordered = False

    def _limit(self, tokens: list[int]) -> int:
        """Return how many of the newest tokens come after the last breaker."""
        for i, token in enumerate(tokens):
            if (tails := self._breakers.get(token)) is not None:
                lengths = [len(tail) for tail in tails if tail == tokens[max(0, i - len(tail)) : i][::-1]]
                if lengths:
                    return i - max(lengths)
        return len(tokens)

    def _repeated(self, tokens: np.ndarray, limit: int) -> dict[int, int]:
        """Return, for each token that would prolong a repetition, its length, if at least `dry_allowed_length`."""
        lengths = np.zeros(len(tokens), np.int64)  # of the match that ends at each earlier position
        ends, n = np.arange(1, len(tokens)), 0
        while n < limit and len(ends := ends[ends + n < len(tokens)]):
            ends = ends[tokens[ends + n] == tokens[n]]
            n += 1
            lengths[ends] = n
        repeated: dict[int, int] = {}
        for end in np.flatnonzero(lengths >= self._params.dry_allowed_length).tolist():
            token = int(tokens[end - 1])
            if [] not in self._breakers.get(token, ()):  # a breaker may be repeated
                repeated[token] = max(repeated.get(token, 0), int(lengths[end]))
        return repeated


class BreakerTable:
    """DRY's sequence breakers: strings as tokens of a vocabulary. Cached, for each takes a pass over the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cached: dict[str, Breakers] = {}

    def __call__(self, texts: Iterable[str]) -> Breakers:
        """Return the tokens that contain one of the strings, and those that begin one at their end, with the rest."""
        merged: Breakers = {}
        for text in texts:
            if text not in self._cached:
                self._cached[text] = self._breakers(text.encode())
            for token, tails in self._cached[text].items():
                merged.setdefault(token, []).extend(tail for tail in tails if tail not in merged[token])
        return merged

    def _breakers(self, text: bytes) -> Breakers:
        tails = [(text[:i], self._tail(text[i:])) for i in range(1, len(text))]
        breakers: Breakers = {}
        for token in range(self._tokenizer.vocab_size):
            piece = self._tokenizer.token_bytes(token)
            if text in piece:
                breakers[token] = [[]]
            elif begun := [tail for head, tail in tails if piece.endswith(head)]:
                breakers[token] = begun
        return breakers

    def _tail(self, rest: bytes) -> list[int]:
        return self._tokenizer.encode(rest.decode("utf-8", "replace"))
