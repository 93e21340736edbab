"""Stages that cut the candidates down or change how far apart they are.

Each leaves at least the likeliest candidate it was given, except typical_p and XTC, which are made to drop it.
"""

import math
from typing import Literal

import numpy as np

from llamina.sampling.candidates import Candidates, Floats, best
from llamina.sampling.random import EXCLUSION

COLDEST, HOTTEST = 1e-30, 3e38  # beyond these float32 knows only ties and equals


def top_k(c: Candidates, k: int) -> None:
    c.keep_best(k)


def top_p(c: Candidates, p: float) -> None:
    """The fewest likeliest whose probabilities reach p."""
    probabilities = c.probabilities()
    if c.ordered:
        c.keep_best(int(probabilities.cumsum().searchsorted(np.float32(p))) + 1)
    else:
        _keep_mass(c, c.logits, probabilities, p, "left")
        c.ordered = True


def typical_p(c: Candidates, p: float) -> None:
    """Those whose surprise is nearest to the expected one, until their probabilities exceed p."""
    surprise, entropy = _surprise(c)
    _keep_mass(c, -np.abs(surprise - entropy), np.exp(-surprise), p, "right")
    c.ordered = False


def _keep_mass(c: Candidates, scores: Floats, probabilities: Floats, p: float, side: Literal["left", "right"]) -> None:
    """The best by score up to a sum of probabilities; mostly a few of many, so not all are sorted."""
    for n in (256, 4096, 32768, len(scores)):
        order = best(scores, n)
        mass = probabilities[order].cumsum()
        cut = int(mass.searchsorted(np.float32(p), side))
        if cut < len(mass) or n >= len(scores):
            break
    c.keep(order[: cut + 1])


def min_p(c: Candidates, p: float) -> None:
    """Those at least p times as likely as the likeliest."""
    c.keep_where(c.logits >= c.logits.max() + np.float32(math.log(p)))


def top_n_sigma(c: Candidates, n: float) -> None:
    """Those whose logits are within n standard deviations of the largest."""
    finite = c.logits[c.logits > -np.inf]
    c.keep_where(c.logits >= c.logits.max() - np.float32(n) * finite.std())


def top_a(c: Candidates, a: float) -> None:
    """Those at least a times as likely as the square of the likeliest's probability."""
    probabilities = c.probabilities()
    _keep_likely(c, probabilities, a * float(probabilities.max()) ** 2)


def epsilon_cutoff(c: Candidates, epsilon: float) -> None:
    """Those at least so likely."""
    _keep_likely(c, c.probabilities(), epsilon)


def eta_cutoff(c: Candidates, eta: float) -> None:
    """Those at least eta likely, or √eta·e^-entropy if that is less (Hewitt et al. 2022)."""
    surprise, entropy = _surprise(c)
    _keep_likely(c, np.exp(-surprise), min(eta, math.sqrt(eta) * math.exp(-entropy)))


def _keep_likely(c: Candidates, probabilities: Floats, least: float) -> None:
    c.keep_where(probabilities >= min(np.float32(least), probabilities.max()))


def xtc(c: Candidates, probability: float, threshold: float) -> None:
    """Sometimes, of all tokens at least as likely as the threshold, only the least likely stays."""
    if len(c.logits) < 2 or c.uniform(EXCLUSION) > probability:
        return
    probabilities = c.probabilities()
    top = np.flatnonzero(probabilities >= threshold)
    if len(top) > 1:
        stays = top[np.argsort(-probabilities[top], kind="stable")[-1]]
        c.keep(np.delete(np.arange(len(c.logits)), top[top != stays]))


def temperature(c: Candidates, value: float) -> None:
    """Above 1 the candidates come closer together, below 1 they move apart; at 0 the likeliest is alone."""
    if value == 0:
        c.keep_best(1)
        return
    highest = c.logits[0] if c.ordered else c.logits.max()
    if value < COLDEST:
        c.keep_where(c.logits == highest)
    else:
        c.logits = (c.logits - highest) / np.float32(min(value, HOTTEST))


def dynamic_temperature(c: Candidates, low: float, high: float, exponent: float) -> None:
    """From low where the model is sure to high where all candidates are equally likely."""
    if len(c.logits) > 1:
        _, entropy = _surprise(c)
        temperature(c, low + (high - low) * (entropy / math.log(len(c.logits))) ** exponent)


def _surprise(c: Candidates) -> tuple[Floats, float]:
    """-log p of each candidate, and what is to be expected."""
    weights = c.weights()
    total = weights.sum()
    surprise = np.log(total) - (c.logits - c.logits.max())
    certain = weights > 0
    return surprise, float((weights[certain] / total * surprise[certain]).sum())
