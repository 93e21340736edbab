"""Stages that truncate the candidates (top-k, top-p, min-p, …) or rescale their logits (temperature).

Each leaves at least the likeliest candidate, except typical_p and XTC, which may drop it by design.
"""

import math
from typing import Literal

import numpy as np

from llamina.sampling.candidates import Candidates, Floats, best
from llamina.sampling.random import EXCLUSION

COLDEST, HOTTEST = 1e-30, 3e38  # beyond these, float32 logits are all apart or all equal


def top_k(c: Candidates, k: int) -> None:
    """Keep the k likeliest."""
    c.keep_best(k)


def top_p(c: Candidates, p: float) -> None:
    """Keep the fewest likeliest whose probabilities add up to p."""
    probabilities = c.probabilities()
    if c.ordered:
        c.keep_best(int(probabilities.cumsum().searchsorted(np.float32(p))) + 1)
    else:
        _keep_mass(c, c.logits, probabilities, p, "left")
        c.ordered = True


def typical_p(c: Candidates, p: float) -> None:
    """Keep those whose surprise is nearest to the entropy, until their probabilities exceed p (Meister et al. 2022)."""
    surprise, entropy = _surprise(c)
    _keep_mass(c, -np.abs(surprise - entropy), np.exp(-surprise), p, "right")
    c.ordered = False


def _keep_mass(c: Candidates, scores: Floats, probabilities: Floats, p: float, side: Literal["left", "right"]) -> None:
    """Keep the best by score until their probabilities add up to p; usually few of many, so not all are sorted."""
    for n in (256, 4096, 32768, len(scores)):
        order = best(scores, n)
        mass = probabilities[order].cumsum()
        cut = int(mass.searchsorted(np.float32(p), side))
        if cut < len(mass) or n >= len(scores):
            break
    c.keep(order[: cut + 1])


def min_p(c: Candidates, p: float) -> None:
    """Keep those at least p times as likely as the likeliest."""
    c.keep_where(c.logits >= c.logits.max() + np.float32(math.log(p)))


def top_n_sigma(c: Candidates, n: float) -> None:
    """Keep those whose logits are within n standard deviations of the largest."""
    finite = c.logits[c.logits > -np.inf]
    c.keep_where(c.logits >= c.logits.max() - np.float32(n) * finite.std())


def top_a(c: Candidates, a: float) -> None:
    """Keep those whose probability is at least a times the square of the largest."""
    probabilities = c.probabilities()
    _keep_likely(c, probabilities, a * float(probabilities.max()) ** 2)


def epsilon_cutoff(c: Candidates, epsilon: float) -> None:
    """Keep those whose probability is at least epsilon."""
    _keep_likely(c, c.probabilities(), epsilon)


def eta_cutoff(c: Candidates, eta: float) -> None:
    """Keep those whose probability is at least eta, or √eta·e^-entropy if that is less (Hewitt et al. 2022)."""
    surprise, entropy = _surprise(c)
    _keep_likely(c, np.exp(-surprise), min(eta, math.sqrt(eta) * math.exp(-entropy)))


def _keep_likely(c: Candidates, probabilities: Floats, least: float) -> None:
    c.keep_where(probabilities >= min(np.float32(least), probabilities.max()))


def xtc(c: Candidates, probability: float, threshold: float) -> None:
    """With a probability, keep only the least likely of the tokens that reach the threshold, and all below it."""
    if len(c.logits) < 2 or c.uniform(EXCLUSION) > probability:
        return
    probabilities = c.probabilities()
    top = np.flatnonzero(probabilities >= threshold)
    if len(top) > 1:
        stays = top[np.argsort(-probabilities[top], kind="stable")[-1]]
        c.keep(np.delete(np.arange(len(c.logits)), top[top != stays]))


def temperature(c: Candidates, value: float) -> None:
    """Divide the logits by the temperature; at 0 keep only the likeliest."""
    if value == 0:
        c.keep_best(1)
        return
    highest = c.logits[0] if c.ordered else c.logits.max()
    if value < COLDEST:
        c.keep_where(c.logits == highest)
    else:
        c.logits = (c.logits - highest) / np.float32(min(value, HOTTEST))


def dynamic_temperature(c: Candidates, low: float, high: float, exponent: float) -> None:
    """Apply a temperature between `low` and `high`, by the entropy relative to its maximum, raised to an exponent."""
    if len(c.logits) > 1:
        _, entropy = _surprise(c)
        temperature(c, low + (high - low) * (entropy / math.log(len(c.logits))) ** exponent)


def _surprise(c: Candidates) -> tuple[Floats, float]:
    """Return -log p of each candidate, and the entropy."""
    weights = c.weights()
    total = weights.sum()
    surprise = np.log(total) - (c.logits - c.logits.max())
    certain = weights > 0
    return surprise, float((weights[certain] / total * surprise[certain]).sum())
