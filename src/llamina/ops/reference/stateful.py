"""Operations with a state: attention over the KV cache, and recurrences."""

from collections.abc import Iterator

import numpy as np

from llamina.ops.batch import PAGE, Batch
from llamina.ops.reference.attention import gather, select_blocks, weigh
from llamina.ops.reference.registry import Array, Reference, operation
from llamina.ops.reference.stateless import softmax
from llamina.ops.rotation import alibi_slopes
from llamina.ops.stateful import Ngrams
from llamina.ops.value import State, Step


@operation("attend")
def _attend(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    state, params = step.states[0], step.attrs["params"]
    q, new, selected = x[0], x[1 : 1 + len(ref.states[state])], x[1 + len(ref.states[state]) :]
    slopes = alibi_slopes(q.shape[1], params.alibi)
    out = np.empty((batch.n_tokens, *step.outputs[0].shape), np.float32)
    n = batch.n_tokens
    lasts = batch.until[:n] if step.attrs.get("until") or params.bounded else batch.positions[:n]
    if not params.causal and not params.bounded:
        lasts = batch.positions[batch.starts[batch.sequences[:n] + 1] - 1]
    for t, cached in enumerate(_cached(ref, state, new, batch, lasts)):
        values = cached[0][..., : state.shape[2]] if state.kind == "latent" else cached[1]
        position, table, keys = int(batch.positions[t]), w[0] if w else None, cached[0]
        if params.bounded:
            first = int(batch.since[t])
            position, keys, values = position - first, keys[:, first:], values[:, first:]
        out[t] = weigh(q[t], position, keys, values, params, slopes, table, selected[0][t] if selected else None)
    return out


@operation("select")
def _select(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    out = np.empty((batch.n_tokens, *step.outputs[0].shape), np.int32)
    for t, cached in enumerate(_cached(ref, step.states[0], x[1:2], batch, batch.positions[: batch.n_tokens])):
        out[t] = select_blocks(x[0][t], cached[0][0], x[2][t] if len(x) > 2 else None, step.attrs["params"])
    return out


def _cached(ref: Reference, state: State, new: list[Array], batch: Batch, lasts: Array) -> Iterator[list[Array]]:
    """Write this step's rows to the cache, then yield for each token what is there up to its last position.

    That is [heads, n, dim] of each.
    """
    stores, slots = ref.states[state], np.arange(batch.n_tokens)
    tables = batch.window_tables if state in ref.windowed else batch.tables
    table, position = tables[batch.sequences[slots]], batch.positions[slots]
    for store, rows in zip(stores, new, strict=True):
        store[table[slots, position // PAGE], :, position % PAGE] = ref.round(state, rows)
    for t in slots:
        n = lasts[t] + 1
        yield [gather(store, table[t, : -(-n // PAGE)], n) for store in stores]


@operation("convolve")
def _convolve(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    recent = _recent(ref, step.states[0], x[0], batch)[..., :: step.attrs["apart"]]
    out = np.einsum("ncw,cw->nc", recent, w[0])
    return out + w[1] if len(w) > 1 else out


@operation("pool")
def _pool(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    recent = _recent(ref, step.states[0], np.concatenate(x, -1), batch)
    values, gates = np.split(recent, 2, 1)
    return np.einsum("ncw,ncw->nc", values, softmax(gates + w[0].T))


@operation("ngrams")
def _ngrams(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    params: Ngrams = step.attrs["params"]
    numbered = (x[0] + 1).astype(np.float32)[:, None]  # so that 0 is none
    recent = (
        _recent(ref, step.states[0], numbered, batch)[:, 0, ::-1].astype(np.int64) - 1
    )  # [rows, taps], newest first
    for tap in range(1, recent.shape[1]):
        cut = (recent[:, tap] < 0) | (recent[:, tap] == params.end)
        recent[cut, tap:] = params.end
    mixed = np.bitwise_xor.accumulate(recent.astype(np.uint64) * np.array(params.multipliers, np.uint64), 1)[:, 1:]
    mixed = np.repeat(mixed, len(params.sizes) // mixed.shape[1], 1)
    return (mixed % np.array(params.sizes, np.uint64)).astype(np.int32) + np.array(params.offsets, np.int32)


def _recent(ref: Reference, state: State, x: Array, batch: Batch) -> Array:
    """Each token's row and those before it, [rows, channels, taps]; the state keeps the last ones."""
    cached = ref.states[state][0]
    out = np.empty((*x.shape, cached.shape[1] + 1), np.float32)
    for s in range(batch.n_sequences):
        rows, slot = slice(batch.starts[s], batch.starts[s + 1]), batch.slots[s]
        past = cached[slot] if batch.positions[batch.starts[s]] else np.zeros_like(cached[slot])
        line = np.concatenate([past, x[rows]])  # [taps-1 + n, channels]
        out[rows] = np.lib.stride_tricks.sliding_window_view(line, len(past) + 1, 0)
        cached[slot] = line[len(line) - len(past) :]
    return out


@operation("scan")
def _scan(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    values, dt, b, c = x
    out = np.empty_like(values)
    for t, h in _recurrence(ref, step, batch):
        h[:] = h * np.exp(dt[t, :, None] * w[0]) + (values[t] * dt[t])[:, None] * b[t]
        out[t] = h @ c[t]
    return out


def _recurrence(ref: Reference, step: Step, batch: Batch) -> Iterator[tuple[int, Array]]:
    """Each token with the state of its sequence, which is zero before the first."""
    cached = ref.states[step.states[0]][0]
    for s in range(batch.n_sequences):
        for t in range(batch.starts[s], batch.starts[s + 1]):
            if not batch.positions[t]:
                cached[batch.slots[s]] = 0
            yield t, cached[batch.slots[s]]


@operation("linear_attend")
def _linear_attend(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    heads = np.arange(x[2].shape[1])
    groups = x[0].shape[1]
    group = heads % groups if step.attrs["tiled"] else heads * groups // len(heads)
    q, k, v = x[0][:, group], x[1][:, group], x[2]
    decay = np.broadcast_to(w[0], (len(v), *w[0].shape)) if w else x[3]
    out = np.empty_like(v)
    for t, state in _recurrence(ref, step, batch):  # [heads, key, dim]
        state *= decay[t, :, :, None]
        new = v[t]
        if step.attrs["delta"]:
            new = (new - np.einsum("hk,hkd->hd", k[t], state)) * x[-1][t, :, None]
        state += k[t, :, :, None] * new[:, None]
        out[t] = np.einsum("hk,hkd->hd", q[t], state)
    return out
