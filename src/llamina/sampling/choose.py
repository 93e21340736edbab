"""The last step: one of the candidates."""

import numpy as np

from llamina.sampling.candidates import Candidates


def draw(c: Candidates) -> int:
    """A candidate by its probability."""
    mass = np.cumsum(c.weights().astype(np.float64))
    last = np.searchsorted(mass, mass[-1])  # beyond it all weights are 0
    chosen = np.searchsorted(mass, c.place.uniform() * mass[-1], "right")
    return int(c.ids[min(chosen, last)])


def likeliest(c: Candidates) -> int:
    """The first of the candidates with the largest logit."""
    at = int(c.logits.argmax())
    c.check(c.logits[at])
    return int(c.ids[at])
