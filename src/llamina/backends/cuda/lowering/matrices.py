"""Launches of what reads matrices: products and embeddings."""

import numpy as np

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.kernels.layout import Array
from llamina.backends.cuda.kernels.products import Activation, Call, Product, activation_arrays, gather, prepare
from llamina.backends.cuda.lowering.calls import Calls, lowers
from llamina.backends.cuda.memory import Place, Ref
from llamina.backends.cuda.shared import Matrix
from llamina.ops import Step, Value

MATRICES = ("embed", "linear", "head_linear", "expert_linear")  # operations whose weight is one


def _run(calls: Calls, call: Call, names: dict[str, Ref]) -> None:
    """A call of the products' own, its names put in."""
    args = {key: names[value] if isinstance(value, str) else value for key, value in call.args.items()}
    calls.emit(call.kernel, call.grid, call.warps, call.stages, **args, **call.constants)


def _room(calls: Calls, arrays: dict[str, Array]) -> dict[str, Ref]:
    return {name: calls.new(-(-array.nbytes // 4), array.type) for name, array in arrays.items()}


@lowers("embed")
def _embed(calls: Calls, step: Step) -> None:
    matrix, ids, out = calls.shared.matrix(step.weights[0]), calls.place(step.inputs[0]), calls.output(step.outputs[0])
    items, layout = calls.rows(step.inputs[0]) * ids.width, matrix.layout
    if layout.form:
        _run(calls, gather(layout, items, layout.columns), {**matrix.arrays, "ids": ids.ref, "out": out.ref})
        return
    block = min(1024, power(layout.columns))
    calls.emit(
        "embed.embed", (items, -(-layout.columns // block), 1), ids=ids.ref, table=matrix.arrays["low"], out=out.ref,
        gain=_gain(matrix), width=layout.columns, padded=layout.padded, FRAGMENTS=int(layout.format != "F32"),
        BLOCK=block,
    )  # fmt: skip


def _gain(matrix: Matrix) -> float:
    """What the numbers of a plain matrix were multiplied by when it was laid out."""
    return matrix.gain if matrix.layout.format == "BF16" else 1.0


@lowers("linear")
def _linear(calls: Calls, step: Step) -> None:
    matrix, value = calls.shared.matrix(step.weights[0]), step.inputs[0]
    items = calls.rows(value) * calls.place(value).outer
    _multiply(calls, value, Product(matrix.layout, items, matrix.gain), matrix, calls.output(step.outputs[0]), {})


@lowers("head_linear", "expert_linear")
def _experts(calls: Calls, step: Step) -> None:
    """Items are a row's vectors, each for one expert; a head's expert is its own."""
    matrix, value, out = calls.shared.matrix(step.weights[0]), step.inputs[0], calls.output(step.outputs[0])
    items = calls.rows(value) * out.outer
    product = Product(matrix.layout, items, matrix.gain, grouped=True)
    item = np.arange(items, dtype=np.int32)
    shared = out.outer if calls.place(value).outer == 1 else 1  # experts that read the same vector
    expert = calls.place(step.inputs[1]).ref if step.op == "expert_linear" else calls.array(item % out.outer)
    _multiply(calls, value, product, matrix, out, {"expert": expert, "source": calls.array(item // shared)})


def _multiply(calls: Calls, value: Value, product: Product, matrix: Matrix, out: Place, names: dict[str, Ref]) -> None:
    names |= matrix.arrays | {"out": out.ref} | _activation(calls, value, product.activation, matrix)
    names |= _room(calls, product.workspace)
    for call in product.calls:
        _run(calls, call, names)


def _activation(calls: Calls, value: Value, kind: Activation, matrix: Matrix) -> dict[str, Ref]:
    """A value as a product reads it; made once for all products that read it so."""
    rows, layout = _even(calls, value), matrix.layout
    if kind == "f32":
        return {"x": rows.ref}
    items, stride = calls.rows(value) * rows.outer, rows.head if rows.outer > 1 else rows.row
    key = value.id, kind
    if key not in calls.prepared:
        made = _room(calls, activation_arrays(kind, items, layout))
        call = prepare(kind, items, layout, stride)
        assert call is not None
        _run(calls, call, {"x": rows.ref} | made)
        calls.prepared[key] = made
    return calls.prepared[key]


def _even(calls: Calls, value: Value) -> Place:
    """The value's vectors at even distances: as they are, or copied."""
    place = calls.place(value)
    even = place.outer == 1 or place.row == place.outer * place.head
    if even and (place.head if place.outer > 1 else place.row) == place.inner:
        return place
    copy = calls.fresh(value)
    calls.copy(value, place, copy)
    calls.places[value.id] = copy
    return copy
