"""Stages that look back: tokens that occurred, and tokens that would go on with a repetition."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from llamina.sampling.candidates import Candidates
from llamina.sampling.params import Sampling


def penalize(c: Candidates, params: Sampling) -> None:
    """Recent tokens become less likely, once for occurring and again for each time they did."""
    counts = Counter(recent(c.history, params.repeat_last_n))
    tokens, times = np.array([*counts], np.intp), np.array([*counts.values()], np.float32)
    at, present = c.places(tokens)
    logits, repeat = c.logits[at], np.float32(params.repeat_penalty)
    logits = np.where(logits > 0, logits / repeat, logits * repeat)
    c.logits[at] = logits - (times[present] * params.frequency_penalty + params.presence_penalty)
    c.ordered = False


def recent(history: Sequence[int], n: int) -> Sequence[int]:
    """The last n tokens; of a negative n, all."""
    return history if n < 0 else history[max(0, len(history) - n) :]


Breakers = dict[int, list[list[int]]]  # first token → what must follow it


class Dry:
    """Don't repeat yourself: the longer the repetition a token would prolong, the larger its penalty."""

    def __init__(self, params: Sampling, breakers: Breakers) -> None:
        self._params = params
        self._breakers = breakers
        # the penalty must stay a float32: longer repetitions than this are as bad as this
        steps = 88.7228391 / math.log(params.dry_base) if params.dry_base > 1.000001 else math.inf
        self._longest = params.dry_allowed_length + (int(steps) if steps < 1 << 31 else 1 << 31)

    def __call__(self, c: Candidates) -> None:
        params = self._params
        newest_first = np.array(recent(c.history, params.dry_penalty_last_n), np.intp)[::-1]
        limit = self._limit(newest_first.tolist())
        if limit < params.dry_allowed_length or len(newest_first) <= params.dry_allowed_length:
            return
        repeated = self._repeated(newest_first, min(limit, self._longest))
        at, present = c.places(np.array([*repeated], np.intp))
        lengths = np.array([*repeated.values()], np.float64)[present]
        penalties = params.dry_multiplier * np.float_power(params.dry_base, lengths - params.dry_allowed_length)
        c.logits[at] -= penalties.astype(np.float32)
        c.ordered = False

    def _limit(self, tokens: list[int]) -> int:
        """How many of the newest tokens come after the last breaker."""
        for i, token in enumerate(tokens):
            if (tails := self._breakers.get(token)) is not None:
                found = [len(tail) for tail in tails if tail == tokens[max(0, i - len(tail)) : i][::-1]]
                if found:
                    return i - max(found)
        return len(tokens)

    def _repeated(self, tokens: np.ndarray, limit: int) -> dict[int, int]:
        """Token → how many of the newest tokens also came before it, where that is enough to matter."""
        lengths = np.zeros(len(tokens), np.int64)  # by the place where an earlier occurrence ends
        ends, n = np.arange(1, len(tokens)), 0
        while n < limit and len(ends := ends[ends + n < len(tokens)]):
            ends = ends[tokens[ends + n] == tokens[n]]
            n += 1
            lengths[ends] = n
        found: dict[int, int] = {}
        for end in np.flatnonzero(lengths >= self._params.dry_allowed_length).tolist():
            token = int(tokens[end - 1])
            if [] not in self._breakers.get(token, ()):  # a breaker may be repeated
                found[token] = max(found.get(token, 0), int(lengths[end]))
        return found
