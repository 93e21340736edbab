"""Attention of one token over what is kept, and the choice of what it attends to."""

import numpy as np

from llamina.ops.keeping import Attention, Selection
from llamina.ops.reference.registry import Array


def gather(store: Array, pages: Array, n: int) -> Array:
    """[pages, heads, PAGE, dim] → [heads, n, dim]."""
    rows = store[pages].transpose(1, 0, 2, 3)
    return rows.reshape(rows.shape[0], -1, rows.shape[3])[:, :n].astype(np.float32)


def weigh(
    q: Array,
    position: int,
    keys: Array,
    values: Array,
    how: Attention,
    slopes: Array,
    sinks: Array | None,
    seen: Array | None,
) -> Array:
    """One token: q [heads, dim], keys and values [kv heads, n, dim] → [heads, value dim]."""
    group, n = len(q) // len(keys), keys.shape[1]
    keys, values = np.repeat(keys, group, 0), np.repeat(values, group, 0)
    scores = np.einsum("hd,hnd->hn", q, keys, dtype=np.float64) * how.scale
    if how.softcap:
        scores = np.tanh(scores / how.softcap) * how.softcap
    distance = np.abs(np.arange(n) - position)
    scores = scores - slopes[:, None] * distance
    if how.window:
        scores[:, distance >= how.behind] = -np.inf
    if how.chunk:
        scores[:, : position // how.chunk * how.chunk] = -np.inf
    if seen is not None:
        bits = np.unpackbits(seen.view(np.uint8), axis=-1, bitorder="little")[:, np.arange(n) // how.block]
        scores[np.repeat(bits, len(q) // len(bits), 0) == 0] = -np.inf
    top = scores.max(-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None])
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None] - top)
    return np.einsum("hn,hnd->hd", weights / total, values).astype(np.float32)


def choose(q: Array, keys: Array, weights: Array | None, how: Selection) -> Array:
    """One token: q [heads, dim], keys [n, dim] → the bits of the chosen blocks, int32 [1 or heads, words]."""
    scores = np.einsum("hd,nd->hn", q, keys, dtype=np.float64).astype(np.float32)
    if weights is not None:
        scores = (weights @ np.maximum(scores, 0))[None]
    n = scores.shape[1]
    whole, last = n // how.block, (n - 1) // how.block
    if how.whole:
        blocks = scores[:, how.block - 1 :: how.block]
    else:
        blocks = np.stack([scores[:, b * how.block : (b + 1) * how.block].max(-1) for b in range(last + 1)], -1)
        blocks[:, max(last + 1 - how.local, 0) :] = np.inf
    bits = np.zeros((len(scores), how.words * 32), np.uint8)
    np.put_along_axis(bits, np.argsort(-blocks, -1, kind="stable")[:, : how.top], 1, -1)
    if how.whole:
        bits[:, whole : last + 1] = 1
    return np.packbits(bits, -1, bitorder="little").view(np.int32)
