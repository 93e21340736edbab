"""Mirostat (Basu et al. 2021): truncation that holds the surprise of drawn tokens near a target."""

import math

import numpy as np

from llamina.sampling.candidates import Candidates, best
from llamina.sampling.choose import draw

SAMPLE = 100  # likeliest tokens from which version 1 estimates the exponent of Zipf's law


class Mirostat:
    """Draws a token and adapts to it. `mu` is the largest surprise, in bits, of a token that may be drawn."""

    def __init__(self, version: int, tau: float, eta: float, vocab: int) -> None:
        self._truncate = self._by_exponent if version == 1 else self._by_surprise
        self._tau, self._eta, self._vocab = tau, eta, vocab
        self.mu = 2 * tau

    def __call__(self, c: Candidates) -> int:
        """Return a drawn token, after adapting `mu` to it."""
        self._truncate(c)
        token = draw(c)
        surprise = -math.log2(float(c.probabilities()[c.ids == token][0]))
        self.mu -= self._eta * (surprise - self._tau)
        return token

    def _by_surprise(self, c: Candidates) -> None:
        """Version 2: keep the candidates whose surprise is at most `mu`."""
        with np.errstate(divide="ignore"):
            surprise = -np.log2(c.probabilities())
        c.keep_where(surprise <= max(np.float32(self.mu), surprise.min()))

    def _by_exponent(self, c: Candidates) -> None:
        """Version 1: keep as many as Zipf's law, with the exponent of the likeliest tokens, gives for `mu`."""
        top = c.logits[best(c.logits, SAMPLE)].astype(np.float64)
        if len(top) < 2:
            return
        steps = np.log(np.arange(2, len(top) + 1) / np.arange(1, len(top)))
        exponent = float((steps * (top[:-1] - top[1:])).sum() / (steps**2).sum())
        c.keep_best(max(1, int(self._count(exponent, len(c.logits)))))

    def _count(self, exponent: float, most: int) -> float:
        excess = exponent - 1
        if exponent == 0:
            return most  # all are equally likely
        spread = excess / (1 - self._vocab**-excess) if excess else 1 / math.log(self._vocab)
        bits = (self.mu + math.log2(spread)) / exponent
        return min(most, 2.0**bits) if bits < 64 else most
