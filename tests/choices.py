"""What a `Choice` means, in NumPy."""

import numpy as np
import numpy.typing as npt

from llamina.backends.base import NONE_LEFT, NOT_FINITE, Choice


def choose(logits: npt.NDArray[np.float32], choice: Choice) -> int:
    """The token of a row."""
    v = logits.astype(np.float64)
    for token, bias, repeat, penalty in choice.changes:
        v[token] += bias
        v[token] = (v[token] / repeat if v[token] > 0 else v[token] * repeat) - penalty
    if choice.mask is not None:
        allowed = np.unpackbits(choice.mask.view(np.uint8), bitorder="little")[: len(v)]
        v[allowed == 0] = -np.inf
    if np.isnan(v).any() or v.max() == np.inf:
        return NOT_FINITE
    if v.max() == -np.inf:
        return NONE_LEFT
    if choice.number is None:
        return int(v.argmax())
    order = np.argsort(-v, kind="stable")[: choice.top_k]
    weights = np.exp(v[order] - v.max())
    cut = int(np.searchsorted(np.cumsum(weights) / weights.sum(), choice.top_p)) + 1 if choice.top_p < 1 else len(order)
    order = order[:cut]
    if choice.min_p:
        order = order[v[order] >= v.max() + np.log(choice.min_p)]
    mass = np.cumsum(np.exp((v[order] - v.max()) / choice.temperature))
    return int(order[np.searchsorted(mass, choice.number * mass[-1], "right")])
