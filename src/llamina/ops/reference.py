"""What every operation means, in NumPy: the truth that kernels are compared with."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from llamina.ops.attention import choose, gather, weigh
from llamina.ops.batch import PAGE, Batch
from llamina.ops.rotation import alibi_slopes, frequencies
from llamina.ops.value import State, Step, Weight
from llamina.quant import decode

Array: TypeAlias = Any  # an ndarray; NumPy's stubs lose the type in arithmetic


class Reference:
    """Computes steps one by one. `states` holds what layers keep, as `keep` leaves it of a state's keys and values."""

    def __init__(self, states: dict[State, list[Array]], keep: Callable[[State, Array], Array]) -> None:
        self.states = states
        self.keep = keep
        self._decoded: dict[str, Array] = {}

    def apply(self, step: Step, inputs: list[Array], batch: Batch) -> list[Array]:
        """The outputs of a step, each [rows, *shape]."""
        weights = [self.decode(w) for w in step.weights]
        result = OPS[step.op](self, step, inputs, weights, batch)
        arrays = result if isinstance(result, list) else [result]
        rows = batch.n_tokens if step.outputs[0].rows == "tokens" else batch.n_outputs
        return [a.reshape(rows, *v.shape) for a, v in zip(arrays, step.outputs, strict=True)]

    def decode(self, w: Weight) -> Array:
        if w.name not in self._decoded:
            self._decoded[w.name] = decode(w.data, w.format, w.shape)
        return self._decoded[w.name]


Operation = Callable[[Reference, Step, list[Array], list[Array], Batch], Array | list[Array]]
OPS: dict[str, Operation] = {}


def _meaning(name: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPS[name] = function
        return function

    return register


@_meaning("embed")
def _embed(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return w[0][x[0]]


@_meaning("linear")
def _linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] @ w[0].T


@_meaning("head_linear")
def _head_linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.einsum("thi,hoi->tho", x[0], w[0])


@_meaning("expert_linear")
def _expert_linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    rows, chosen = x[0], x[1]
    if rows.ndim == 2:
        rows = np.broadcast_to(rows[:, None], (len(rows), chosen.shape[1], rows.shape[1]))
    out = np.empty((*chosen.shape, w[0].shape[1]), np.float32)
    for expert in np.unique(chosen):
        out[chosen == expert] = rows[chosen == expert] @ w[0][expert].T
    return out


@_meaning("expert_bias")
def _expert_bias(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] + w[0][x[1]]


def _affine(y: Array, w: list[Array]) -> Array:
    if w:
        y = y * w[0].reshape(_spread(w[0], y))
    return y + w[1].reshape(_spread(w[1], y)) if len(w) > 1 else y


def _spread(w: Array, y: Array) -> tuple[int, ...]:
    return y.shape[1:] if w.size == y[0].size else (y.shape[-1],)


@_meaning("rms_norm")
def _rms_norm(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    mean = np.mean(np.square(x[0], dtype=np.float64), -1, keepdims=True)
    return _affine((x[0] / np.sqrt(mean + step.attrs["eps"])).astype(np.float32), w)


@_meaning("layer_norm")
def _layer_norm(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    centred = x[0] - np.mean(x[0], -1, keepdims=True, dtype=np.float64)
    variance = np.mean(np.square(centred), -1, keepdims=True)
    return _affine((centred / np.sqrt(variance + step.attrs["eps"])).astype(np.float32), w)


@_meaning("add")
def _add(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] + (x[1] if len(x) > 1 else w[0])


@_meaning("mul")
def _mul(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] * (x[1] if len(x) > 1 else w[0])


@_meaning("div")
def _div(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] / (x[1] if len(x) > 1 else w[0])


@_meaning("pad")
def _pad(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    before = step.outputs[0].size - x[0].shape[1]
    return np.pad(x[0], ((0, 0), (before, 0)), constant_values=step.attrs["fill"])


@_meaning("scale")
def _scale(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] * np.float32(step.attrs["factor"])


def _sigmoid(x: Array) -> Array:
    return (1 / (1 + np.exp(-np.clip(x.astype(np.float64), -700, 700)))).astype(np.float32)


def _gelu_tanh(x: Array) -> Array:
    return (0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))).astype(np.float32)


def _gelu_erf(x: Array) -> Array:
    from math import erf

    return (0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2.0)))).astype(np.float32)


def _softplus(x: Array) -> Array:
    return np.asarray(np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20)))), np.float32)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "gelu_quick": lambda x: x * _sigmoid(np.float32(1.702) * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu_sqr": lambda x: np.square(np.maximum(x, 0)),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softplus": _softplus,
    "exp": np.exp,
}


@_meaning("activate")
def _activate(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return ACTIVATIONS[step.attrs["kind"]](x[0])


@_meaning("gated")
def _gated(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    if step.attrs["kind"] == "swiglu_oai":
        return ACTIVATIONS["gelu_quick"](np.minimum(x[0], 7)) * (np.clip(x[1], -7, 7) + 1)
    return ACTIVATIONS[step.attrs["kind"]](x[0]) * x[1]


@_meaning("softcap")
def _softcap(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    cap = np.float32(step.attrs["cap"])
    return np.tanh(x[0] / cap) * cap


@_meaning("at_most")
def _at_most(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.minimum(x[0], np.float32(step.attrs["limit"]))


@_meaning("at_least")
def _at_least(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.maximum(x[0], np.float32(step.attrs["limit"]))


@_meaning("temper")
def _temper(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    stretches = np.floor((batch.positions[: batch.n_tokens] + step.attrs["offset"]) / step.attrs["length"])
    factors = 1 + step.attrs["factor"] * np.log1p(stretches)
    return x[0] * factors.astype(np.float32).reshape(-1, *[1] * (x[0].ndim - 1))


@_meaning("rope")
def _rope(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    rope, half = step.attrs["rope"], step.attrs["rope"].dims // 2
    angles = batch.positions[: batch.n_tokens, None] * frequencies(rope, w[0] if w else None)
    cos = (np.cos(angles) * rope.magnitude).astype(np.float32)[:, None]
    sin = (np.sin(angles) * rope.magnitude).astype(np.float32)[:, None]
    first = slice(0, half) if rope.neox else slice(0, rope.dims, 2)
    second = slice(half, rope.dims) if rope.neox else slice(1, rope.dims, 2)
    out = x[0].copy()
    a, b = x[0][..., first], x[0][..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


@_meaning("attend")
def _attend(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    state, how = step.states[0], step.attrs["how"]
    q, new, seen = x[0], x[1 : 1 + len(ref.states[state])], x[1 + len(ref.states[state]) :]
    slopes = alibi_slopes(q.shape[1], how.alibi)
    out = np.empty((batch.n_tokens, *step.outputs[0].shape), np.float32)
    for t, kept in enumerate(_keep(ref, state, new, batch, how.causal)):
        values = kept[0][..., : state.shape[2]] if state.kind == "latent" else kept[1]
        out[t] = weigh(q[t], kept[0], values, how, slopes, w[0] if w else None, seen[0][t] if seen else None)
    return out


@_meaning("select")
def _select(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    out = np.empty((batch.n_tokens, *step.outputs[0].shape), np.int32)
    for t, kept in enumerate(_keep(ref, step.states[0], x[1:2], batch)):
        out[t] = choose(x[0][t], kept[0][0], x[2][t] if len(x) > 2 else None, step.attrs["how"])
    return out


def _keep(ref: Reference, state: State, new: list[Array], batch: Batch, causal: bool = True) -> Iterator[list[Array]]:
    """Keep this step's rows, then give each token what is kept up to it (or its sequence's last), [heads, n, dim]."""
    stores, slots = ref.states[state], np.arange(batch.n_tokens)
    table, position = batch.tables[batch.sequences[slots]], batch.positions[slots]
    for store, rows in zip(stores, new, strict=True):
        store[table[slots, position // PAGE], :, position % PAGE] = ref.keep(state, rows)
    for t in slots:
        n = (position[t] if causal else position[batch.starts[batch.sequences[t] + 1] - 1]) + 1
        yield [gather(store, table[t, : -(-n // PAGE)], n) for store in stores]


@_meaning("pick")
def _pick(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0][batch.outputs[: batch.n_outputs]]


@_meaning("route")
def _route(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> list[Array]:
    how = step.attrs["how"]
    scores = _sigmoid(x[0]) if how.scoring == "sigmoid" else x[0]
    if how.scoring == "softmax":
        scores = _softmax(scores)
    ranked = scores + w[0] if w else scores
    if how.groups > 1:
        ranked = _best_groups(ranked, how)
    chosen = np.argsort(-ranked, -1, kind="stable")[:, : how.used].astype(np.int32) // how.share
    weights = np.take_along_axis(scores, chosen, -1)
    if how.scoring == "softmax_selected":
        weights = _softmax(weights)
    elif how.scoring == "sigmoid_selected":
        weights = _sigmoid(weights)
    if how.normalize:
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), np.float32(6.103515625e-5))
    return [chosen, weights * np.float32(how.scale)]


@_meaning("softmax")
def _softmax_of(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return _softmax(x[0])


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _best_groups(ranked: Array, how: Any) -> Array:
    """Experts outside the best groups (by the sum of each group's two best) are out of the running."""
    grouped = ranked.reshape(len(ranked), how.groups, -1)
    group_scores = np.sort(grouped, -1)[..., -2:].sum(-1)
    kept = np.argsort(-group_scores, -1, kind="stable")[:, : how.groups_used]
    out = np.full_like(grouped, -np.inf)
    np.put_along_axis(out, kept[..., None], np.take_along_axis(grouped, kept[..., None], 1), 1)
    return out.reshape(ranked.shape)


@_meaning("mix")
def _mix(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.einsum("tkd,tk->td" if x[1].ndim == 2 else "tkd,tkn->tnd", x[0], x[1])


@_meaning("sinkhorn")
def _sinkhorn(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    eps, y = step.attrs["eps"], _softmax(x[0].astype(np.float64)) + step.attrs["eps"]
    for i in range(step.attrs["rounds"]):
        if i:
            y = y / (y.sum(-1, keepdims=True) + eps)
        y = y / (y.sum(-2, keepdims=True) + eps)
    return y.astype(np.float32)


@_meaning("convolve")
def _convolve(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    out = np.einsum("ncw,cw->nc", _recent(ref, step.states[0], x[0], batch), w[0])
    return out + w[1] if len(w) > 1 else out


@_meaning("pool")
def _pool(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    recent = _recent(ref, step.states[0], np.concatenate(x, -1), batch)
    values, gates = np.split(recent, 2, 1)
    return np.einsum("ncw,ncw->nc", values, _softmax(gates + w[0].T))


def _recent(ref: Reference, state: State, x: Array, batch: Batch) -> Array:
    """Each token's row and those before it, [rows, channels, taps]; the state keeps the last ones."""
    kept = ref.states[state][0]
    out = np.empty((*x.shape, kept.shape[1] + 1), np.float32)
    for s in range(batch.n_sequences):
        rows, slot = slice(batch.starts[s], batch.starts[s + 1]), batch.slots[s]
        past = kept[slot] if batch.positions[batch.starts[s]] else np.zeros_like(kept[slot])
        line = np.concatenate([past, x[rows]])  # [taps-1 + n, channels]
        out[rows] = np.lib.stride_tricks.sliding_window_view(line, len(past) + 1, 0)
        kept[slot] = line[len(line) - len(past) :]
    return out


@_meaning("scan")
def _scan(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    values, dt, b, c = x
    out = np.empty_like(values)
    for t, h in _recurrence(ref, step, batch):
        h[:] = h * np.exp(dt[t, :, None] * w[0]) + (values[t] * dt[t])[:, None] * b[t]
        out[t] = h @ c[t]
    return out


def _recurrence(ref: Reference, step: Step, batch: Batch) -> Iterator[tuple[int, Array]]:
    """Each token with the state of its sequence, which is zero before the first."""
    kept = ref.states[step.states[0]][0]
    for s in range(batch.n_sequences):
        for t in range(batch.starts[s], batch.starts[s + 1]):
            if not batch.positions[t]:
                kept[batch.slots[s]] = 0
            yield t, kept[batch.slots[s]]


@_meaning("linear_attend")
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


@_meaning("reshape")
def _reshape(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0]


@_meaning("slice")
def _slice(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    start = step.attrs["start"]
    return x[0][..., start : start + step.outputs[0].shape[-1]]


@_meaning("concat")
def _concat(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    beside = np.broadcast_to(x[1], (*x[0].shape[:-1], x[1].shape[-1]))
    return np.concatenate([x[0], beside], -1)
