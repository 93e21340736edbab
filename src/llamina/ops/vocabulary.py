"""The closed vocabulary of operations. Shapes are those of one row; the number of rows is the batch's business.

Positions, sequences and pages belong to the batch, which every step sees, so operations do not pass them around.
"""

import math
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from llamina.errors import RecordingError, UnsupportedModel
from llamina.ops.value import Rows, Shape, State, Step, Value, Weight

Activation = Literal[
    "silu", "gelu", "gelu_erf", "gelu_quick", "relu", "relu_sqr", "sigmoid", "tanh", "softplus", "exp",
    "signed_sqrt",
]  # fmt: skip
Gate = Activation | Literal["swiglu_oai"]
Scoring = Literal["softmax", "sigmoid", "softmax_selected", "sigmoid_selected"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions: `dims` leading elements of a head are rotated in pairs.

    `neox` pairs i with i + dims/2, otherwise neighbours are paired. `scale` multiplies positions (linear scaling);
    YaRN blends towards unscaled frequencies by `ext_factor` between the wavelengths of `beta_fast` and `beta_slow`.
    `magnitude` stretches the rotated elements. `unrotated` pairs stay as they are. `axes` says which of M-RoPE's three
    positions each pair follows; they are the same in text.
    """

    dims: int
    base: float
    neox: bool = False
    scale: float = 1.0
    ext_factor: float = 0.0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 0
    unrotated: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


def emit(
    op: str,
    inputs: tuple[Value, ...],
    shapes: list[Shape],
    weights: tuple[Weight | None, ...] = (),
    attrs: dict[str, Any] | None = None,
    states: tuple[State, ...] = (),
    rows: Rows | None = None,
    integer: tuple[bool, ...] | None = None,
) -> tuple[Value, ...]:
    tape, rows = inputs[0].tape, rows or inputs[0].rows
    kinds = integer or (False,) * len(shapes)
    outputs = tuple(Value(tape, tape.new_id(), s, rows, k) for s, k in zip(shapes, kinds, strict=True))
    present = tuple(w for w in weights if w is not None)
    tape.emit(Step(op, inputs, present, outputs, attrs or {}, states))
    return outputs


def check(fits: bool, op: str, *operands: Value | Weight) -> None:
    if not fits:
        shapes = ", ".join(f"{o} {list(o.shape)}" if isinstance(o, Weight) else f"{list(o.shape)}" for o in operands)
        raise UnsupportedModel(f"{op} does not fit its operands: {shapes}; the file does not match its architecture")


def embed(tokens: Value, table: Weight) -> Value:
    """Rows of the table: () → (width,), or (n,) → (n, width)."""
    check(len(table.shape) == 2 and len(tokens.shape) < 2, "embed", tokens, table)
    return emit("embed", (tokens,), [(*tokens.shape, table.shape[1])], (table,))[0]


def linear(x: Value, w: Weight) -> Value:
    """(…, in) → (…, out) through w [out, in], times w's scale, plus its bias."""
    check(len(w.shape) == 2 and x.shape[-1] == w.shape[1], "linear", x, w)
    out = emit("linear", (x,), [(*x.shape[:-1], w.shape[0])], (w,))[0]
    out = mul(out, w.scale) if w.scale else out
    return add(out, w.bias) if w.bias else out


def head_linear(x: Value, w: Weight) -> Value:
    """(heads, in) → (heads, out): a matrix of its own for each head, w [heads, out, in]."""
    check(len(w.shape) == 3 and x.shape == (w.shape[0], w.shape[2]), "head_linear", x, w)
    return emit("head_linear", (x,), [w.shape[:2]], (w,))[0]


def expert_linear(x: Value, w: Weight, chosen: Value) -> Value:
    """(in,) or (used, in) → (used, out): the chosen experts' matrices of w [experts, out, in]."""
    check(len(w.shape) == 3 and x.shape[-1] == w.shape[2], "expert_linear", x, w)
    used = chosen.shape[0]
    check(w.bias is None or w.bias.shape == w.shape[:2], "expert_linear", w, *([w.bias] if w.bias else []))
    out = emit("expert_linear", (x, chosen), [(used, w.shape[1])], (w,))[0]
    out = mul(out, embed(chosen, w.scale.shaped(w.shape[0], 1))) if w.scale else out
    return emit("expert_bias", (out, chosen), [out.shape], (w.bias,))[0] if w.bias else out


def norm(x: Value, w: Weight | None, eps: float, kind: Literal["rms", "layer"] = "rms") -> Value:
    """Over the last dimension; w (and its bias) may span the last one or the last two."""
    check(w is None or prod(w.shape) in (x.shape[-1], x.size), "norm", x, *([w] if w else []))
    bias = w.bias if w else None
    check(bias is None or w is None or prod(bias.shape) == prod(w.shape), "norm", x, *([bias] if bias else []))
    return emit(f"{kind}_norm", (x,), [x.shape], (w, bias), {"eps": eps})[0]


def _broadcasts(shape: Shape, other: Shape) -> bool:
    """`other` repeats over `shape`: equal, a suffix of it, or with a 1 as its last dimension."""
    tail = shape[len(shape) - len(other) :]
    return len(other) <= len(shape) and all(o in (s, 1) for s, o in zip(tail, other, strict=True))


def add(x: Value, y: Value | Weight) -> Value:
    """x + y, y repeated over x where it is smaller."""
    check(_broadcasts(x.shape, y.shape), "add", x, y)
    return emit("add", *_operands(x, y))[0]


def mul(x: Value, y: Value | Weight) -> Value:
    """x × y, y repeated over x where it is smaller."""
    check(_broadcasts(x.shape, y.shape), "mul", x, y)
    return emit("mul", *_operands(x, y))[0]


def div(x: Value, y: Value | Weight) -> Value:
    """x / y, y repeated over x where it is smaller."""
    check(_broadcasts(x.shape, y.shape), "div", x, y)
    return emit("div", *_operands(x, y))[0]


def _operands(x: Value, y: Value | Weight) -> tuple[tuple[Value, ...], list[Shape], tuple[Weight, ...]]:
    return ((x, y), [x.shape], ()) if isinstance(y, Value) else ((x,), [x.shape], (y,))


def scale(x: Value, factor: float) -> Value:
    """x × a constant."""
    return emit("scale", (x,), [x.shape], attrs={"factor": factor})[0]


def activate(x: Value, kind: Activation) -> Value:
    """An activation, element by element."""
    return emit("activate", (x,), [x.shape], attrs={"kind": kind})[0]


def gated(gate: Value, up: Value, kind: Gate) -> Value:
    """activation(gate) × up; `swiglu_oai` cuts both at 7 (the gate only from above) and takes 1 + up."""
    check(gate.shape == up.shape, "gated", gate, up)
    return emit("gated", (gate, up), [up.shape], attrs={"kind": kind})[0]


def pad(x: Value, before: int, fill: float) -> Value:
    """(n,) → (before + n,): `fill`s, then x."""
    check(len(x.shape) == 1 and before >= 0, "pad", x)
    return emit("pad", (x,), [(before + x.size,)], attrs={"fill": fill})[0] if before else x


def softcap(x: Value, cap: float) -> Value:
    """cap × tanh(x / cap); a cap of 0 is none."""
    return emit("softcap", (x,), [x.shape], attrs={"cap": cap})[0] if cap else x


def clamp(x: Value, low: float, high: float) -> Value:
    """x, but nothing below `low` or above `high` (which may be infinite)."""
    if high < math.inf:
        x = emit("at_most", (x,), [x.shape], attrs={"limit": high})[0]
    return emit("at_least", (x,), [x.shape], attrs={"limit": low})[0] if low > -math.inf else x


def temper(x: Value, length: int, factor: float, offset: float = 0.0) -> Value:
    """x × (1 + factor × ln(1 + ⌊(position + offset) / length⌋)): queries at far positions are scaled up."""
    return emit("temper", (x,), [x.shape], attrs={"length": length, "factor": factor, "offset": offset})[0]


def softmax(x: Value) -> Value:
    """Over the last dimension."""
    return emit("softmax", (x,), [x.shape])[0]


def rope(x: Value, settings: Rope, factors: Weight | None = None) -> Value:
    """(heads, dim) rotated by its position; `factors` divide the frequencies."""
    check(len(x.shape) == 2 and settings.dims <= x.shape[1] and settings.dims % 2 == 0, "rope", x)
    check(factors is None or factors.shape == (settings.dims // 2,), "rope", x, *([factors] if factors else []))
    return emit("rope", (x,), [x.shape], (factors,), {"rope": settings})[0]


def given(x: Value, rows: Value) -> Value:
    """The batch's rows where it has some, in the place of embeddings."""
    check(x.shape == rows.shape, "given", x, rows)
    return emit("given", (x, rows), [x.shape])[0]


def pick(x: Value, group: int = 1) -> Value:
    """The rows whose outputs are wanted; in groups, each with those after it: (width,) → (group, width)."""
    if group == 1:
        return emit("pick", (x,), [x.shape], rows="outputs")[0]
    check(len(x.shape) == 1, "pick", x)
    return emit("pick", (x,), [(group, *x.shape)], attrs={"group": group}, rows="outputs")[0]


@dataclass(frozen=True, slots=True)
class Routing:
    """How router scores choose experts and weigh them; a `_selected` scoring applies to the chosen ones only.

    `share` scored ones in a row stand for one expert, which the score of its own number weighs.
    """

    used: int
    scoring: Scoring = "softmax"
    normalize: bool = False
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1
    share: int = 1


def route(scores: Value, params: Routing, bias: Weight | None = None) -> tuple[Value, Value]:
    """(experts,) → the chosen experts (used,) and their weights (used,); `bias` sways the choice only."""
    experts = scores.shape[-1]
    check(bias is None or prod(bias.shape) == experts, "route", scores, *([bias] if bias else []))
    _check_routing(experts, params)
    ids, weights = emit(
        "route", (scores,), [(params.used,), (params.used,)], (bias,), {"params": params}, integer=(True, False)
    )
    return ids, weights


def _check_routing(experts: int, params: Routing) -> None:
    """There must be enough experts to choose from, in whole groups."""
    whole = params.groups > 0 and experts % params.groups == 0 and 1 <= params.groups_used <= params.groups
    if not whole or not 1 <= params.used <= experts // params.groups * params.groups_used:
        raise UnsupportedModel(
            f"{params.used} experts of {experts}, in {params.groups_used} of {params.groups} groups, cannot be chosen: "
            "the file does not match its architecture"
        )


def mix(x: Value, weights: Value) -> Value:
    """(used, width) → (width,), the sum weighed by (used,); or, by (used, n), n such sums (n, width)."""
    check(len(x.shape) == 2 and x.shape[0] == weights.shape[0] and len(weights.shape) < 3, "mix", x, weights)
    return emit("mix", (x, weights), [(*weights.shape[1:], x.shape[1])])[0]


def sinkhorn(x: Value, rounds: int, eps: float) -> Value:
    """(n, n) → the softmax of each row, with columns and rows made to sum to 1 alternately, columns last."""
    check(len(x.shape) == 2 and x.shape[0] == x.shape[1] and rounds > 0, "sinkhorn", x)
    return emit("sinkhorn", (x,), [x.shape], attrs={"rounds": rounds, "eps": eps})[0]


# ---- layout: no arithmetic, and no copy where the backend can help it ------------------------------------------


def reshape(x: Value, *shape: int) -> Value:
    """The same elements in another shape."""
    if prod(shape) != x.size:
        raise RecordingError(f"{list(x.shape)} cannot be reshaped to {list(shape)}")
    return x if x.shape == shape else emit("reshape", (x,), [shape])[0]


def heads(x: Value, n: int) -> Value:
    """(n·dim,) → (n, dim)."""
    return reshape(x, n, x.size // n)


def flat(x: Value) -> Value:
    """(n, dim) → (n·dim,)."""
    return reshape(x, x.size)


def split(x: Value, *sizes: int) -> list[Value]:
    """Consecutive pieces of the last dimension."""
    if sum(sizes) != x.shape[-1]:
        raise UnsupportedModel(f"{list(x.shape)} cannot be split into {list(sizes)}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        emit("slice", (x,), [(*x.shape[:-1], n)], attrs={"start": s})[0] for s, n in zip(starts, sizes, strict=True)
    ]


def concat(x: Value, y: Value) -> Value:
    """Side by side in the last dimension; a y of one head goes beside each of x's."""
    check(y.shape[:-1] in (x.shape[:-1], (1,)) and len(x.shape) == len(y.shape), "concat", x, y)
    return emit("concat", (x, y), [(*x.shape[:-1], x.shape[-1] + y.shape[-1])])[0]
