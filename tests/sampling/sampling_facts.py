"""Ways to look into a sampler."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from llamina import Sampling
from llamina.sampling import Sampler
from llamina.sampling.candidates import Candidates
from llamina.sampling.random import Random

NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def logs(probabilities: Sequence[float]) -> np.ndarray:
    return np.log(np.array(probabilities)).astype(np.float32)


def neutral(**options: Any) -> Sampling:
    return Sampling(**{**NEUTRAL, **options})


def distribution(
    logits: np.ndarray, history: Sequence[int] = (), breakers: Any = None, **options: Any
) -> dict[int, float]:
    """Token → the probability with which it would be drawn; candidates in their order."""
    seen: list[Candidates] = []
    sampler = Sampler(neutral(**options), len(logits), breakers=breakers)
    sampler._choose = lambda c: seen.append(c) or 0  # type: ignore[assignment, func-returns-value]
    sampler.sample(logits.copy(), history)
    return dict(zip(seen[0].ids.tolist(), seen[0].probabilities().tolist(), strict=True))


def pick(logits: Any, history: Sequence[int] = (), **options: Any) -> int:
    logits = np.array(logits, np.float32)
    return Sampler(neutral(seed=0) if not options else neutral(**{"seed": 0, **options}), len(logits)).sample(
        logits, history
    )


def candidates(logits: np.ndarray, history: Sequence[int] = (), seed: int = 0) -> Candidates:
    return Candidates(logits, history, Random(seed), len(history))
