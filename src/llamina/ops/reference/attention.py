"""Attention of one token over the KV cache, and the selection of what it attends to."""

import numpy as np

from llamina.ops.reference.registry import Array
from llamina.ops.stateful import Attention, Selection


def gather(store: Array, pages: Array, n: int) -> Array:
    """[pages, heads, PAGE, dim] → [heads, n, dim]."""
    rows = store[pages].transpose(1, 0, 2, 3)
    return rows.reshape(rows.shape[0], -1, rows.shape[3])[:, :n].astype(np.float32)


def weigh(
    q: Array,
    position: int,
    keys: Array,
    values: Array,
    params: Attention,
    slopes: Array,
    table: Array | None,
    selected: Array | None,
) -> Array:
    """One token: q [heads, dim], keys and values [kv heads, n, dim] → [heads, value dim].

    `table` are sinks, or biases by distance where `params` has distances.
    """
    sinks, biases = (None, table) if params.distances else (table, None)
    group, n = len(q) // len(keys), keys.shape[1]
    keys, values = np.repeat(keys, group, 0), np.repeat(values, group, 0)
    scores = np.einsum("hd,hnd->hn", q, keys, dtype=np.float64) * params.scale
    if params.softcap:
        scores = np.tanh(scores / params.softcap) * params.softcap
    behind = position - np.arange(n)
    scores = scores - slopes[:, None] * np.abs(behind)
    if biases is not None:
        scores = scores + biases[:, params.distances - behind]
    if params.window:
        scores[:, behind >= params.behind] = -np.inf
        scores[:, -behind > (params.ahead or n)] = -np.inf  # a causal model's rows see as far ahead as they are told
    if params.chunk:
        scores[:, : position // params.chunk * params.chunk] = -np.inf
    if selected is not None:
        bits = np.unpackbits(selected.view(np.uint8), axis=-1, bitorder="little")[:, np.arange(n) // params.block]
        scores[np.repeat(bits, len(q) // len(bits), 0) == 0] = -np.inf
    top = scores.max(-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None])
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None] - top)
    return np.einsum("hn,hnd->hd", weights / total, values).astype(np.float32)


def select_blocks(q: Array, keys: Array, weights: Array | None, params: Selection) -> Array:
    """One token: q [heads, dim], keys [n, dim] → the bits of the chosen blocks, int32 [1 or heads, words]."""
    scores = np.einsum("hd,nd->hn", q, keys, dtype=np.float64).astype(np.float32)
    if weights is not None:
        scores = (weights @ np.maximum(scores, 0))[None]
    n = scores.shape[1]
    whole, last = n // params.block, (n - 1) // params.block
    if params.whole:
        blocks = scores[:, params.block - 1 :: params.block]
    else:
        blocks = np.stack([scores[:, b * params.block : (b + 1) * params.block].max(-1) for b in range(last + 1)], -1)
        blocks[:, max(last + 1 - params.local, 0) :] = np.inf
    bits = np.zeros((len(scores), params.words * 32), np.uint8)
    np.put_along_axis(bits, np.argsort(-blocks, -1, kind="stable")[:, : params.top], 1, -1)
    if params.whole:
        bits[:, whole : last + 1] = 1
    return np.packbits(bits, -1, bitorder="little").view(np.int32)
