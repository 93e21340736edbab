"""The candidates for the next token, which the stages narrow and reweight."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidSampling
from llamina.sampling.random import CHOICE, Random

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]

NARROW = 1024  # up to so many are simply sorted
GROUP = 64


class Candidates:
    """Tokens that may still be chosen and their logits, for the position after `history`."""

    __slots__ = ("_ids", "_position", "_random", "history", "logits", "ordered")

    def __init__(self, logits: Floats, history: Sequence[int], random: Random, position: int) -> None:
        """All tokens of the vocabulary. Stages write into `logits`."""
        self._ids: Ints | None = None  # None: every token, in order
        self.logits = logits
        self.history = history
        self._random, self._position = random, position
        self.ordered = False  # likeliest first

    def uniform(self, purpose: int = CHOICE) -> float:
        """Return the random number of this position for a purpose."""
        return self._random.uniform(self._position, purpose)

    @property
    def ids(self) -> Ints:
        """The token ids of the candidates."""
        return np.arange(len(self.logits)) if self._ids is None else self._ids

    def token(self, at: int) -> int:
        """Return the token id of a candidate."""
        return at if self._ids is None else int(self._ids[at])

    def keep(self, indices: Ints) -> None:
        """Keep only the candidates at these indices."""
        self._ids = indices if self._ids is None else self._ids[indices]
        self.logits = self.logits[indices]

    def keep_where(self, mask: npt.NDArray[np.bool_]) -> None:
        """Keep only the candidates where the mask is set."""
        self.keep(mask.nonzero()[0])

    def keep_best(self, n: int) -> None:
        """Keep only the n likeliest, sorted. Raises InvalidSampling if none is left."""
        if self.ordered and self._ids is not None:
            self._ids, self.logits = self._ids[:n], self.logits[:n]
            return
        self.keep(best(self.logits, n))
        self.ordered = True
        if not len(self.logits):
            self.check(-math.inf)

    def probabilities(self) -> Floats:
        """Return the softmax of the logits."""
        weights = self.weights()
        weights /= weights.sum()
        return weights

    def weights(self) -> Floats:
        """Return the probabilities relative to the likeliest. Raises InvalidSampling if no logit is finite."""
        highest = self.logits[0] if self.ordered else self.logits.max()
        self.check(float(highest))
        return np.asarray(np.exp(self.logits - highest))

    def check(self, highest: float) -> None:
        """Raise InvalidSampling unless the largest logit is finite."""
        check_largest(highest)

    def indices(self, tokens: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the indices of those tokens that are candidates, and a mask that says which are."""
        if self._ids is None:
            return tokens, np.ones(len(tokens), np.bool_)
        order = np.argsort(self._ids)
        nearest = order[np.minimum(np.searchsorted(self._ids, tokens, sorter=order), len(order) - 1)]
        present = self._ids[nearest] == tokens
        return nearest[present], present


Stage = Callable[[Candidates], None]


def check_largest(logit: float) -> None:
    """Raise InvalidSampling unless the largest logit is finite."""
    if logit == -math.inf:
        raise InvalidSampling("no token is left to choose from: all are ruled out")
    if not math.isfinite(logit):
        raise InvalidSampling(
            f"the largest logit is {logit}: the model is damaged, or an adapter or logits_processor is at fault"
        )


def best(values: Floats, n: int) -> Ints:
    """Return the indices of the n largest values, largest first, equal ones in order, -inf left out.

    Few of many are selected without sorting all: values below the n-th largest are left out first. For very few it
    is enough to compare the maxima of groups.
    """
    size, columns, least = len(values), len(values) // GROUP, -np.inf
    if size > NARROW and size > 2 * n:
        few = columns > 2 * n
        high = values[: GROUP * columns].reshape(GROUP, columns).max(0) if few else values.copy()
        high.partition(len(high) - n)
        least = high[len(high) - n]
    where = (values >= least if least > -np.inf else values > least).nonzero()[0]
    return where[(-values[where]).argsort(kind="stable")[:n]]
