"""The sampler as a list of functions that edit candidates, built once per request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.sampling.params import Sampling

Logits = npt.NDArray[np.float32]


@dataclass(slots=True)
class Candidates:
    """Token ids still in the running, and their logits in the same order."""

    ids: npt.NDArray[Any]
    logits: npt.NDArray[np.float64]

    def keep(self, which: npt.NDArray[Any]) -> None:
        self.ids, self.logits = self.ids[which], self.logits[which]

    def probabilities(self) -> npt.NDArray[np.float64]:
        weights = np.exp(self.logits - self.logits.max())
        return np.asarray(weights / weights.sum())


Stage = Callable[[Candidates], None]


def chain(params: Sampling) -> list[Stage]:
    """The stages a request needs, in llama.cpp's order."""
    stages: list[Stage] = []
    if params.top_k:
        stages.append(lambda c: _top_k(c, params.top_k))
    if params.top_p < 1:
        stages.append(lambda c: _top_p(c, params.top_p))
    if params.min_p > 0:
        stages.append(lambda c: _min_p(c, params.min_p))
    stages.append(lambda c: _temperature(c, params.temperature))
    return stages


def draw(
    logits: Logits,
    params: Sampling,
    stages: Sequence[Stage],
    history: Sequence[int],
    rng: np.random.Generator,
) -> int:
    """The next token. `logits` is not changed."""
    if params.repeat_penalty != 1:
        logits = _penalize(logits, params, history)
    if params.temperature == 0 or params.top_k == 1:
        return int(np.argmax(logits))
    candidates = Candidates(np.arange(len(logits)), logits.astype(np.float64))
    for stage in stages:
        stage(candidates)
    cumulative = np.cumsum(candidates.probabilities())
    chosen = int(np.searchsorted(cumulative, rng.random(), "right"))
    return int(candidates.ids[min(chosen, len(cumulative) - 1)])


def _penalize(logits: Logits, params: Sampling, history: Sequence[int]) -> Logits:
    """Recent tokens become less likely: positive logits divided by the penalty, negative ones multiplied."""
    recent = history if params.repeat_last_n < 0 else history[max(0, len(history) - params.repeat_last_n) :]
    seen = np.unique(np.asarray(recent, np.int64)) if recent else np.empty(0, np.int64)
    out = logits.copy()
    out[seen] = np.where(out[seen] > 0, out[seen] / params.repeat_penalty, out[seen] * params.repeat_penalty)
    return out


def _top_k(c: Candidates, k: int) -> None:
    if k < len(c.ids):
        c.keep(np.argpartition(-c.logits, k - 1)[:k])
    c.keep(np.lexsort((c.ids, -c.logits)))


def _top_p(c: Candidates, p: float) -> None:
    """The fewest most likely candidates whose probabilities reach p."""
    order = np.lexsort((c.ids, -c.logits))
    cumulative = np.cumsum(c.probabilities()[order])
    c.keep(order[: int(np.searchsorted(cumulative, p)) + 1])


def _min_p(c: Candidates, p: float) -> None:
    """Those at least p times as likely as the likeliest."""
    c.keep(c.logits >= c.logits.max() + np.log(p))


def _temperature(c: Candidates, temperature: float) -> None:
    with np.errstate(over="ignore"):  # a temperature near 0 leaves only the likeliest
        c.logits = (c.logits - c.logits.max()) / temperature
