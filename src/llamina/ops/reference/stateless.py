"""Operations without a state, and what LoRA adapters add to the products of a matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np

from llamina.ops.adapters import LowRank
from llamina.ops.batch import Batch
from llamina.ops.reference.registry import Array, Reference, operation
from llamina.ops.rotation import frequencies
from llamina.ops.value import Step


@operation("embed")
def _embed(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return w[0][x[0]]


@operation("linear")
def _linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] @ w[0].T


@operation("head_linear")
def _head_linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.einsum("thi,hoi->tho", x[0], w[0])


@operation("expert_linear")
def _expert_linear(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    rows, chosen = x[0], x[1]
    if rows.ndim == 2:
        rows = np.broadcast_to(rows[:, None], (len(rows), chosen.shape[1], rows.shape[1]))
    out = np.empty((*chosen.shape, w[0].shape[1]), np.float32)
    for expert in np.unique(chosen):
        out[chosen == expert] = rows[chosen == expert] @ w[0][expert].T
    return out


@operation("expert_bias")
def _expert_bias(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] + w[0][x[1]]


def _affine(y: Array, w: list[Array]) -> Array:
    if w:
        y = y * w[0].reshape(_spread(w[0], y))
    return y + w[1].reshape(_spread(w[1], y)) if len(w) > 1 else y


def _spread(w: Array, y: Array) -> tuple[int, ...]:
    return y.shape[1:] if w.size == y[0].size else (y.shape[-1],)


@operation("rms_norm")
def _rms_norm(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    mean = np.mean(np.square(x[0], dtype=np.float64), -1, keepdims=True)
    return _affine((x[0] / np.sqrt(mean + step.attrs["eps"])).astype(np.float32), w)


@operation("layer_norm")
def _layer_norm(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    centred = x[0] - np.mean(x[0], -1, keepdims=True, dtype=np.float64)
    variance = np.mean(np.square(centred), -1, keepdims=True)
    return _affine((centred / np.sqrt(variance + step.attrs["eps"])).astype(np.float32), w)


def _other(x: list[Array], w: list[Array]) -> Array:
    """What is added to x, or multiplied with it: a value of a smaller shape is repeated within its row."""
    if len(x) == 1:
        return w[0]
    return x[1].reshape(len(x[1]), *[1] * (x[0].ndim - x[1].ndim), *x[1].shape[1:])


@operation("add")
def _add(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] + _other(x, w)


@operation("mul")
def _mul(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] * _other(x, w)


@operation("div")
def _div(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0] / _other(x, w)


@operation("pad")
def _pad(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    before = step.outputs[0].size - x[0].shape[1]
    return np.pad(x[0], ((0, 0), (before, 0)), constant_values=step.attrs["fill"])


@operation("scale")
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
    "signed_sqrt": lambda x: np.sign(x) * np.sqrt(np.maximum(np.abs(x), np.float32(1e-6))),
}


@operation("activate")
def _activate(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return ACTIVATIONS[step.attrs["kind"]](x[0])


@operation("gated")
def _gated(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    if step.attrs["kind"] == "swiglu_oai":
        return ACTIVATIONS["gelu_quick"](np.minimum(x[0], 7)) * (np.clip(x[1], -7, 7) + 1)
    return ACTIVATIONS[step.attrs["kind"]](x[0]) * x[1]


@operation("softcap")
def _softcap(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    cap = np.float32(step.attrs["cap"])
    return np.tanh(x[0] / cap) * cap


@operation("at_most")
def _at_most(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.minimum(x[0], np.float32(step.attrs["limit"]))


@operation("at_least")
def _at_least(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.maximum(x[0], np.float32(step.attrs["limit"]))


@operation("temper")
def _temper(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    stretches = np.floor((batch.positions[: batch.n_tokens] + step.attrs["offset"]) / step.attrs["length"])
    factors = 1 + step.attrs["factor"] * np.log1p(stretches)
    return x[0] * factors.astype(np.float32).reshape(-1, *[1] * (x[0].ndim - 1))


@operation("rope")
def _rope(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    rope, half = step.attrs["rope"], step.attrs["rope"].dims // 2
    positions = batch.positions[: batch.n_tokens, None]
    if step.attrs.get("rotary"):
        positions = batch.rotary[list(rope.axes), : batch.n_tokens].T
    angles = positions * frequencies(rope, w[0] if w else None)
    cos = (np.cos(angles) * rope.magnitude).astype(np.float32)[:, None]
    sin = (np.sin(angles) * rope.magnitude).astype(np.float32)[:, None]
    first = slice(0, half) if rope.neox else slice(0, rope.dims, 2)
    second = slice(half, rope.dims) if rope.neox else slice(1, rope.dims, 2)
    out = x[0].copy()
    a, b = x[0][..., first], x[0][..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


@operation("given")
def _given(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.where(batch.given[: batch.n_tokens, None] > 0, x[1], x[0])


@operation("pick")
def _pick(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    rows = batch.outputs[: batch.n_outputs, None] + np.arange(step.attrs.get("group", 1))
    return x[0][rows]


@operation("route")
def _route(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> list[Array]:
    params = step.attrs["params"]
    scores = _sigmoid(x[0]) if params.scoring == "sigmoid" else x[0]
    if params.scoring == "softmax":
        scores = softmax(scores)
    ranked = scores + w[0] if w else scores
    if params.groups > 1:
        ranked = _best_groups(ranked, params)
    chosen = np.argsort(-ranked, -1, kind="stable")[:, : params.used].astype(np.int32) // params.share
    weights = np.take_along_axis(scores, chosen, -1)
    if params.scoring == "softmax_selected":
        weights = softmax(weights)
    elif params.scoring == "sigmoid_selected":
        weights = _sigmoid(weights)
    if params.normalize:
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), np.float32(6.103515625e-5))
    return [chosen, weights * np.float32(params.scale)]


@operation("all_reduce")
def _all_reduce(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    """The sum of what the ranks of a divided model have computed; `plan.shard` writes such steps."""
    out = np.array(x[0], np.float32, order="C")
    step.attrs["link"].all_reduce(out)
    return out


@operation("softmax")
def _softmax(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return softmax(x[0])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _best_groups(ranked: Array, params: Any) -> Array:
    """Scores, -inf for experts outside the best groups; a group's score is the sum of its two best."""
    grouped = ranked.reshape(len(ranked), params.groups, -1)
    group_scores = np.sort(grouped, -1)[..., -2:].sum(-1)
    kept = np.argsort(-group_scores, -1, kind="stable")[:, : params.groups_used]
    out = np.full_like(grouped, -np.inf)
    np.put_along_axis(out, kept[..., None], np.take_along_axis(grouped, kept[..., None], 1), 1)
    return out.reshape(ranked.shape)


@operation("mix")
def _mix(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return np.einsum("tkd,tk->td" if x[1].ndim == 2 else "tkd,tkn->tnd", x[0], x[1])


@operation("sinkhorn")
def _sinkhorn(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    eps, y = step.attrs["eps"], softmax(x[0].astype(np.float64)) + step.attrs["eps"]
    for i in range(step.attrs["rounds"]):
        if i:
            y = y / (y.sum(-1, keepdims=True) + eps)
        y = y / (y.sum(-2, keepdims=True) + eps)
    return y.astype(np.float32)


@operation("reshape")
def _reshape(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    return x[0]


@operation("slice")
def _slice(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    start = step.attrs["start"]
    return x[0][..., start : start + step.outputs[0].shape[-1]]


@operation("concat")
def _concat(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    beside = np.broadcast_to(x[1], (*x[0].shape[:-1], x[1].shape[-1]))
    return np.concatenate([x[0], beside], -1)


# ---- adapters -----------------------------------------------------------------------------------------------


@operation("adapt")
def _adapt(ref: Reference, step: Step, x: list[Array], w: list[Array], batch: Batch) -> Array:
    """x[1], plus what the adapters of each row's request make of x[0]."""
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
