"""What adapters add to the products of a matrix."""

import numpy as np

from llamina.ops.adapters import LowRank
from llamina.ops.batch import Batch
from llamina.ops.reference.registry import Array, Reference, meaning
from llamina.ops.value import Step


@meaning("adapt")
def _adapt(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    """x[1], and for the rows of requests with adapters what those make of x[0]."""
    out, name = x[1].copy(), step.attrs["matrix"]
    tokens = range(batch.n_tokens) if step.outputs[0].rows == "tokens" else batch.outputs[: batch.n_outputs]
    for row, token in enumerate(tokens):
        for slot, scale in batch.applied(int(token)):
            if pair := ref.adapters.get(slot, {}).get(name):
                factor = np.float32(np.float64(scale) * pair.scale)
                out[row] += factor * _times(pair, step.attrs["op"], x[0][row], x[2][row] if len(x) > 2 else None)
    return out


def _times(pair: LowRank, op: str, x: Array, chosen: Array | None) -> Array:
    """b·(a·x) for one row."""
    if op == "embed":
        return pair.b @ pair.a[x]
    if chosen is None:
        return (x @ pair.a.T) @ pair.b.T
    rows = np.broadcast_to(x, (len(chosen), x.shape[-1]))
    return np.stack([pair.b[e] @ (pair.a[e] @ row) for e, row in zip(chosen, rows, strict=True)])
