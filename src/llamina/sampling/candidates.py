"""The tokens that may come next, as the stages see them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidSampling
from llamina.sampling.random import Place

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]

NARROW = 1024  # so few are sorted without further thought
GROUP = 64


@dataclass(slots=True)
class Candidates:
    """Token ids still in the running and their logits, for the place after `history`."""

    ids: Ints
    logits: Floats
    history: Sequence[int]
    place: Place
    ordered: bool = False  # likeliest first

    @classmethod
    def everything(cls, logits: Floats, history: Sequence[int], place: Place) -> "Candidates":
        """The whole vocabulary. Stages write into `logits`."""
        return cls(_everyone(len(logits)), logits, history, place)

    def keep(self, which: npt.NDArray[Any]) -> None:
        """Only those at these places, or where a mask is true."""
        self.ids, self.logits = self.ids[which], self.logits[which]

    def keep_best(self, n: int) -> None:
        """The n likeliest, in order."""
        self.keep(slice(n) if self.ordered else best(self.logits, n))  # type: ignore[arg-type]
        self.ordered = True
        if not len(self.ids):
            self.check(np.float32(-np.inf))

    def probabilities(self) -> Floats:
        weights = self.weights()
        return np.asarray(weights / weights.sum())

    def weights(self) -> Floats:
        """Probabilities up to a factor: 1 for the likeliest."""
        highest = self.logits.max()
        self.check(highest)
        return np.asarray(np.exp(self.logits - highest))

    def check(self, highest: np.float32) -> None:
        """There must be something to choose from, and the largest logit a number."""
        if not np.isfinite(highest):
            raise InvalidSampling(f"no token is left to choose from: the largest logit is {highest}")

    def places(self, tokens: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Where the tokens are among the candidates, for those that are (the mask says which)."""
        if self.ids is _everyone(len(self.ids)):
            return tokens, np.ones(len(tokens), np.bool_)
        order = np.argsort(self.ids)
        found = order[np.minimum(np.searchsorted(self.ids, tokens, sorter=order), len(order) - 1)]
        present = self.ids[found] == tokens
        return found[present], present


Stage = Callable[[Candidates], None]


def best(values: Floats, n: int) -> Ints:
    """Where the n largest are, largest first and equal ones in order. -inf is none of them.

    Few of many are found without sorting all: what is below n others is left out first. For very few it is enough to
    compare the largest values of groups.
    """
    columns, least = len(values) // GROUP, np.float32(-np.inf)
    if len(values) > NARROW and len(values) > 2 * n:
        few = columns > 2 * n
        high = values[: GROUP * columns].reshape(GROUP, columns).max(0) if few else values
        least = np.partition(high, len(high) - n)[len(high) - n]
    where = np.flatnonzero(values >= least if least > -np.inf else values > -np.inf)
    return where[np.argsort(-values[where], kind="stable")[:n]]


@lru_cache(maxsize=4)
def _everyone(n: int) -> Ints:
    ids = np.arange(n)
    ids.setflags(write=False)
    return ids
