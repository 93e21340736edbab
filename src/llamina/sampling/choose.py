"""The last step of sampling: draw one of the candidates, or take the likeliest."""

import numpy as np

from llamina.sampling.candidates import Candidates


def draw(c: Candidates) -> int:
    """Return a token drawn by its probability. Raises InvalidSampling if no logit is finite."""
    mass = c.weights().cumsum(dtype=np.float64)
    total = mass[-1]
    chosen = int(mass.searchsorted(c.uniform() * total, "right"))
    if chosen == len(mass):  # rounding gave the total; the last weights may be 0
        chosen = int(mass.searchsorted(total))
    return c.token(chosen)


def likeliest(c: Candidates) -> int:
    """Return the first token with the largest logit. Raises InvalidSampling if that is not finite."""
    at = int(c.logits.argmax())
    c.check(float(c.logits[at]))
    return c.token(at)
