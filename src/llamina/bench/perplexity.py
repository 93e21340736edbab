"""Perplexity as llama.cpp's `llama-perplexity` defines it, so that figures can be compared.

The text is cut into windows, one after the other; a rest at its end is not used. Where the model wants BOS, it replaces
the first token of each window. Only tokens of a window's second half are scored, so that each has at least half of it
before it. The perplexity is exp of the mean negative log-likelihood of all scored tokens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine import Engine

LEAST = 4  # tokens of a window: the second half must have one to score


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text: the `scored` tokens, and those before them."""

    before: list[int]
    scored: list[int]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A perplexity with its standard error, from `count` scored tokens."""

    perplexity: float
    error: float
    count: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The estimate, the number of windows, and each scored token with its log-probability."""

    estimate: Estimate
    windows: int
    tokens: list[int]
    logprobs: list[float]


def cut(tokens: Sequence[int], size: int) -> list[list[int]]:
    """Whole windows of `size` tokens. Raises RequestError if there are fewer than two, or if they are too small."""
    if size < LEAST:
        raise RequestError(f"the window has {size} tokens: at least {LEAST} are needed", "context")
    if len(tokens) < 2 * size:
        raise RequestError(
            f"the text has {len(tokens)} tokens, and at least two windows of {size} are needed, {2 * size} tokens: "
            "give a longer text, or make windows smaller with -c, or use --method overlap",
            "text",
        )
    return [list(tokens[start : start + size]) for start in range(0, len(tokens) - size + 1, size)]


def split(tokens: Sequence[int], bos: int | None) -> Window:
    """What is scored of a window, and what comes before; `bos` is None where the model wants no BOS."""
    first = len(tokens) // 2 + 1
    before, scored = list(tokens[:first]), list(tokens[first:])
    return Window(before if bos is None else [bos, *before[1:]], scored)


def window(tokens: Sequence[int], engine: "Engine") -> Window:
    """A window as a model reads it."""
    return split(tokens, engine.tokenizer.bos if engine.tokenizer.add_bos else None)


def estimate(logprobs: Sequence[float]) -> Estimate:
    """Perplexity and its standard error from the log-probabilities of at least two tokens."""
    losses = -np.asarray(logprobs, np.float64)
    mean, count = float(losses.mean()), len(losses)
    variance = max(0.0, float((losses**2).mean()) - mean**2)
    perplexity = math.exp(mean)
    return Estimate(perplexity, perplexity * math.sqrt(variance / (count - 1)), count)


def measure_perplexity(
    engine: "Engine",
    text: str,
    size: int,
    progress: Callable[[int, int], None],
    adapters: Mapping[str, float] | None = None,
    chunks: int | None = None,
) -> Measured:
    """Score a text in windows of `size` tokens, the first `chunks` of them.

    `progress` is called with the windows done and their number. Raises RequestError if the text is too short.
    """

    def score(part: list[int], scored: list[int]) -> list[float]:
        return engine.score(window(part, engine).before, scored, adapters=adapters).logprobs

    found = cut(engine.encode(text, parse_special=False), size)[:chunks]
    return in_windows(engine, found, score, progress)


def in_windows(
    engine: "Engine",
    found: Sequence[list[int]],
    score: Callable[[list[int], list[int]], list[float]],
    progress: Callable[[int, int], None],
) -> Measured:
    """The estimate of windows, by a function that gives the log-probabilities of what is scored of one."""
    tokens: list[int] = []
    logprobs: list[float] = []
    for done, part in enumerate(found):
        progress(done, len(found))
        scored = window(part, engine).scored
        logprobs += score(part, scored)
        tokens += scored
    progress(len(found), len(found))
    return Measured(estimate(logprobs), len(found), tokens, logprobs)
