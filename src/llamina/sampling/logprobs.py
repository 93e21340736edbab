"""Log-probabilities by the model's own distribution: before temperature, truncation, bans and grammars."""

from dataclasses import dataclass

import numpy as np

from llamina.sampling.candidates import Floats, best


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its log-probability, and the likeliest tokens at its position with theirs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def logprob_of(logits: Floats, token: int, n: int) -> TokenLogprob:
    """Return the log-probabilities of a token and of the n likeliest."""
    highest = logits.max()
    total = float(highest) + float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))
    top = tuple((int(at), float(logits[at]) - total) for at in best(logits, n)) if n else ()
    return TokenLogprob(token, float(logits[token]) - total, top)
