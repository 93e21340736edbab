"""The tokens that may come next, as the stages see them."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidSampling
from llamina.sampling.random import CHOICE, Random

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]

NARROW = 1024  # so few are sorted without further thought
GROUP = 64


class Candidates:
    """Tokens still in the running and their logits, for the place after `history`."""

    __slots__ = ("_ids", "_place", "_random", "history", "logits", "ordered")

    def __init__(self, logits: Floats, history: Sequence[int], random: Random, place: int) -> None:
        """The whole vocabulary. Stages write into `logits`."""
        self._ids: Ints | None = None  # None: every token, in order
        self.logits = logits
        self.history = history
        self._random, self._place = random, place
        self.ordered = False  # likeliest first

    def uniform(self, purpose: int = CHOICE) -> float:
        """The random number of this place for a purpose."""
        return self._random.uniform(self._place, purpose)

    @property
    def ids(self) -> Ints:
        """Which tokens they are."""
        return np.arange(len(self.logits)) if self._ids is None else self._ids

    def token(self, at: int) -> int:
        return at if self._ids is None else int(self._ids[at])

    def keep(self, places: Ints) -> None:
        """Only those at these places."""
        self._ids = places if self._ids is None else self._ids[places]
        self.logits = self.logits[places]

    def keep_where(self, mask: npt.NDArray[np.bool_]) -> None:
        self.keep(mask.nonzero()[0])

    def keep_best(self, n: int) -> None:
        """The n likeliest, in order."""
        if self.ordered and self._ids is not None:
            self._ids, self.logits = self._ids[:n], self.logits[:n]
            return
        self.keep(best(self.logits, n))
        self.ordered = True
        if not len(self.logits):
            self.check(-math.inf)

    def probabilities(self) -> Floats:
        weights = self.weights()
        weights /= weights.sum()
        return weights

    def weights(self) -> Floats:
        """Probabilities up to a factor: 1 for the likeliest."""
        highest = self.logits[0] if self.ordered else self.logits.max()
        self.check(float(highest))
        return np.asarray(np.exp(self.logits - highest))

    def check(self, highest: float) -> None:
        """There must be something to choose from, and the largest logit a number."""
        if highest == -math.inf:
            raise InvalidSampling("no token is left to choose from: all are ruled out")
        if not math.isfinite(highest):
            raise InvalidSampling(
                f"the largest logit is {highest}: the model is damaged, or an adapter or logits_processor spoils it"
            )

    def places(self, tokens: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Where the tokens are among the candidates, for those that are (the mask says which)."""
        if self._ids is None:
            return tokens, np.ones(len(tokens), np.bool_)
        order = np.argsort(self._ids)
        found = order[np.minimum(np.searchsorted(self._ids, tokens, sorter=order), len(order) - 1)]
        present = self._ids[found] == tokens
        return found[present], present


Stage = Callable[[Candidates], None]


def best(values: Floats, n: int) -> Ints:
    """Where the n largest are, largest first and equal ones in order. -inf is none of them.

    Few of many are found without sorting all: what is below n others is left out first. For very few it is enough to
    compare the largest values of groups.
    """
    size, columns, least = len(values), len(values) // GROUP, -np.inf
    if size > NARROW and size > 2 * n:
        few = columns > 2 * n
        high = values[: GROUP * columns].reshape(GROUP, columns).max(0) if few else values.copy()
        high.partition(len(high) - n)
        least = high[len(high) - n]
    where = (values >= least if least > -np.inf else values > least).nonzero()[0]
    return where[(-values[where]).argsort(kind="stable")[:n]]
