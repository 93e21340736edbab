"""A request's sampling as data, for a backend that samples where the logits are."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llamina.backends.base import CHANGES, NONE_LEFT, TOP_K, Change, Choice
from llamina.sampling.candidates import check_largest
from llamina.sampling.params import ORDER, Sampling
from llamina.sampling.penalties import recent
from llamina.sampling.stages import COLDEST, HOTTEST


@dataclass(frozen=True, slots=True)
class Handover:
    """What a backend must be able to do to sample for a request, and what it is told for each token."""

    stages: frozenset[str]  # with some that no backend has where the host must sample
    _params: Sampling
    _greedy: bool
    _bias: dict[int, float]

    @property
    def blind(self) -> bool:
        """Whether a token can be sampled before the one ahead of it is known."""
        return self.stages.isdisjoint(("penalties", "mask"))

    def choice(self, history: Sequence[int], number: float | None) -> Choice:
        """How the token after `history` is chosen; the random number is that of its position."""
        params, changes = self._params, self._changes(history)
        if self._greedy:
            return Choice(changes=changes)
        on = {name: name in self.stages for name in ("top_p", "min_p", "temperature")}
        return Choice(
            number,
            params.top_k,
            params.top_p if on["top_p"] else 1.0,
            params.min_p if on["min_p"] else 0.0,
            min(params.temperature, HOTTEST) if on["temperature"] else 1.0,
            changes,
        )

    def _changes(self, history: Sequence[int]) -> list[Change]:
        params = self._params
        if "penalties" not in self.stages:
            return [Change(token, bias) for token, bias in self._bias.items()]
        counts = Counter(recent(history, params.repeat_last_n))
        found = [Change(token, bias) for token, bias in self._bias.items() if token not in counts]
        for token, times in counts.items():
            penalty = times * params.frequency_penalty + params.presence_penalty
            found.append(Change(token, self._bias.get(token, 0.0), params.repeat_penalty, penalty))
        return found


def handover(
    params: Sampling, names: Sequence[str], greedy: bool, bias: dict[int, float], more: Iterable[str]
) -> Handover:
    """Of the stages that have an effect, by name and in order, and `more` that the sampler does."""
    stages = {*names, *more}
    if bias:
        stages.add("bias")
    if sorted(names, key=ORDER.index) != list(names):
        stages.add("another order")
    if not greedy and not ("top_k" in names and params.top_k <= TOP_K):
        stages.add("more candidates")
    if "temperature" in names and (params.dynatemp_range or params.temperature < COLDEST):
        stages.add("another temperature")
    history = params.repeat_last_n if "penalties" in names else 0
    if len(bias) + history > CHANGES or history < 0:
        stages.add("more changes")
    return Handover(frozenset(stages), params, greedy, bias)


def check_token(token: int) -> None:
    """Raise InvalidSampling if a backend found no token to choose."""
    if token < 0:
        check_largest(-math.inf if token == NONE_LEFT else math.nan)
