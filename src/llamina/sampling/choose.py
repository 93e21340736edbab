"""The last step: one of the candidates."""

import numpy as np

from llamina.sampling.candidates import Candidates


def draw(c: Candidates) -> int:
    """A candidate by its probability."""
    mass = c.weights().cumsum(dtype=np.float64)
    total = mass[-1]
    chosen = int(mass.searchsorted(c.uniform() * total, "right"))
    if chosen == len(mass):  # rounded up to the end, where weights may be 0
        chosen = int(mass.searchsorted(total))
    return c.token(chosen)


def likeliest(c: Candidates) -> int:
    """The first of the candidates with the largest logit."""
    at = int(c.logits.argmax())
    c.check(float(c.logits[at]))
    return c.token(at)
