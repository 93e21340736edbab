"""How far a model's predictions are from those of another, its base: as llama-perplexity --kl-divergence defines it.

The windows and scored tokens are those of the perplexity. The base's log-probabilities are rounded to 16 bits first, as
in llama.cpp's files, whether they come from a file or from a model.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from llamina.bench.perplexity import Estimate, Measured, cut, estimate, in_windows, window
from llamina.bench.saved_logits import REACH, Floats, Rows, log_probabilities, rounded, saving
from llamina.engine import Request
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine import Engine

Numbers = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]
PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
AT_ONCE = 1 << 23  # logits that are compared in one go


class Predictions(Protocol):
    """The predictions that others are compared with: windows of tokens, and rows of log-probabilities for each."""

    @property
    def vocab(self) -> int: ...

    @property
    def windows(self) -> list[list[int]]: ...

    def rows(self, index: int) -> Rows: ...


class ModelBase:
    """A model as the base, on a text in windows of `size` tokens. Raises RequestError if the text is too short."""

    def __init__(self, engine: "Engine", text: str, size: int, chunks: int | None = None) -> None:
        self._engine = engine
        self.windows = cut(engine.encode(text, parse_special=False), size)[:chunks]
        self.vocab = engine.runner.plan.vocab

    def rows(self, index: int) -> Rows:
        return rounded(logits_of(self._engine, self.windows[index]))


def logits_of(engine: "Engine", tokens: list[int], adapters: Mapping[str, float] | None = None) -> Floats:
    """The logits by which the scored tokens of a window are predicted, [scored, vocabulary]."""
    part = window(tokens, engine)
    whole = [*part.before, *part.scored]
    reads = range(len(part.before) - 1, len(whole) - 1)
    rows: Floats = engine.read([Request(whole, reads=reads, reading="logits", adapters=adapters or {})])[0]
    return rows


@dataclass(frozen=True, slots=True)
class Divergence:
    """For each scored token: its losses, the KL divergence there, the change of its probability, the same top token."""

    losses: Numbers
    base_losses: Numbers
    divergences: Numbers
    changes: Numbers
    same: npt.NDArray[np.bool_]

    @property
    def perplexity(self) -> Estimate:
        return estimate((-self.losses).tolist())

    @property
    def base_perplexity(self) -> Estimate:
        return estimate((-self.base_losses).tolist())

    @property
    def mean(self) -> float:
        """The mean KL divergence, in nats."""
        return float(self.divergences.mean())

    @property
    def facts(self) -> dict[str, Any]:
        """Everything by name; errors are standard errors, probabilities between 0 and 1."""
        whole, base = self.perplexity, self.base_perplexity
        ratio = self.losses - self.base_losses
        squares = self.changes**2
        rms, same = math.sqrt(float(squares.mean())), float(self.same.mean())
        count = len(self.losses)
        return {
            "perplexity": whole.perplexity,
            "error": whole.error,
            "tokens": count,
            "base": {"perplexity": base.perplexity, "error": base.error},
            "log_ratio": {"mean": float(ratio.mean()), "error": _error(ratio)},
            "ratio": {"mean": math.exp(ratio.mean()), "error": math.exp(ratio.mean()) * _error(ratio)},
            "kl": {"mean": self.mean, "error": _error(self.divergences), **_spread(self.divergences)},
            "probability_change": {
                "mean": float(self.changes.mean()),
                "error": _error(self.changes),
                "rms": rms,
                "rms_error": 0.5 / rms * _error(squares) if rms else 0.0,
                **_spread(self.changes),
            },
            "same_top": {"mean": same, "error": math.sqrt(same * (1 - same) / (count - 1))},
        }


def _error(values: Numbers) -> float:
    """The standard error of the mean."""
    return float(values.std() / math.sqrt(len(values) - 1))


def _spread(values: Numbers) -> dict[str, Any]:
    found = {f"{p:g}": float(x) for p, x in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}
    return {"median": found["50"], "min": float(values.min()), "max": float(values.max()), "percentiles": found}


def measure_divergence(
    engine: "Engine", base: Predictions, progress: Progress, adapters: Mapping[str, float] | None = None
) -> Divergence:
    """Compare a model with its base, window by window. `progress` is called with those done and their number.

    Raises RequestError if the base has another vocabulary, or windows that the model has no context for.
    """
    if base.vocab != engine.runner.plan.vocab:
        raise RequestError(
            f"the base has {base.vocab} tokens in its vocabulary, the model {engine.runner.plan.vocab}: they must have "
            "the same",
            "kl",
        )
    total = len(base.windows)
    found = []
    for done, tokens in enumerate(base.windows):
        progress(done, total)
        scored = window(tokens, engine).scored
        found.append(compare(logits_of(engine, tokens, adapters), base.rows(done), scored))
    progress(total, total)
    return Divergence(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def compare(logits: Floats, base: Rows, scored: list[int]) -> tuple[Any, ...]:
    """What `Divergence` holds, of the rows of one window."""
    most = max(1, AT_ONCE // logits.shape[1])
    starts = range(0, len(scored), most)
    parts = [_compare(logits[at : at + most], base[at : at + most], np.array(scored[at : at + most])) for at in starts]
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def _compare(logits: Floats, base: Rows, scored: npt.NDArray[np.int64]) -> tuple[Any, ...]:
    rows, expected = np.arange(len(scored)), log_probabilities(base, logits.shape[1])
    largest = logits.max(1)
    sums = largest + np.log(np.exp(logits - largest[:, None]).sum(1, dtype=np.float64)).astype(np.float32)
    losses, base_losses = sums - logits[rows, scored], -expected[rows, scored]
    terms = np.exp(expected) * (expected - logits + sums[:, None])
    divergences = np.where(expected > -REACH, terms, 0).sum(1, dtype=np.float64)
    changes = np.exp(-losses) - np.exp(-base_losses)
    same = logits.argmax(1) == expected.argmax(1)
    return (*(part.astype(np.float64) for part in (losses, base_losses, divergences, changes)), same)


def save_logits(
    engine: "Engine",
    text: str,
    size: int,
    path: Path,
    progress: Progress,
    adapters: Mapping[str, float] | None = None,
    chunks: int | None = None,
) -> Measured:
    """The perplexity of a text, with the model's log-probabilities written to a file for others to be compared with."""
    tokens = cut(engine.encode(text, parse_special=False), size)[:chunks]
    with saving(path, tokens, engine.runner.plan.vocab) as file:

        def score(part: list[int], scored: list[int]) -> list[float]:
            logits = logits_of(engine, part, adapters)
            file.write(rounded(logits).astype("<u2").tobytes())
            largest = logits.max(1, keepdims=True)
            sums = largest[:, 0] + np.log(np.exp(logits - largest).sum(1, dtype=np.float64))
            found: list[float] = (logits[np.arange(len(scored)), scored] - sums).tolist()
            return found

        return in_windows(engine, tokens, score, progress)
