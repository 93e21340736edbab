"""Launches of what reads matrices: products and embeddings."""

from dataclasses import dataclass

import numpy as np

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument
from llamina.backends.cuda.kernels.calls import Activation
from llamina.backends.cuda.kernels.layout import Array, Layout
from llamina.backends.cuda.kernels.products import Product, activation_arrays, gather, prepare
from llamina.backends.cuda.loading import Matrix
from llamina.backends.cuda.lowering import small_batch
from llamina.backends.cuda.lowering.after_products import products_at, run
from llamina.backends.cuda.lowering.calls import Calls, lowers
from llamina.backends.cuda.memory import Place, Ref, split_shape
from llamina.ops import Step, Value

WIDEST = 16384  # columns of a row that one program can hold


def _room(calls: Calls, arrays: dict[str, Array]) -> dict[str, Ref]:
    return {name: calls.new(-(-array.nbytes // 4), array.type) for name, array in arrays.items()}


@lowers("embed")
def _embed(calls: Calls, step: Step) -> None:
    matrix, ids, out = calls.shared.matrix(step.weights), calls.place(step.inputs[0]), calls.output(step.outputs[0])
    items, layout = calls.rows(step.inputs[0]) * ids.width, matrix.layout
    if layout.form:
        run(
            calls,
            gather(layout, items, layout.columns, bool(calls.early)),
            {**matrix.arrays, "ids": ids.ref, "out": out.ref},
        )
        return
    block = min(1024, power(layout.columns))
    calls.emit(
        "embed.embed", (items, -(-layout.columns // block), 1), ids=ids.ref, table=matrix.arrays["low"], out=out.ref,
        gain=matrix.gain if layout.format == "BF16" else 1.0, width=layout.columns, padded=layout.padded,
        FRAGMENTS=int(layout.format != "F32"), BLOCK=block,
    )  # fmt: skip


@lowers("linear")
def _linear(calls: Calls, step: Step) -> None:
    """One product, or several of the same vector in one."""
    if small_batch.multiply(calls, step):
        return
    products = products_at(calls, calls.step)
    value, matrix = step.inputs[0], calls.shared.matrix(products.weights)
    tokens = calls.rows(value) * split_shape(value.shape)[0]
    product = _product(calls, matrix, tokens, add=products.endings[0].add is not None, bias=products.biased)
    names = products.names | ({"bias": products.bias(calls)} if products.biased else {})
    products.finish(calls)
    _multiply(calls, value, product, matrix, products.out(calls), names)


@lowers("head_linear", "expert_linear")
def _experts(calls: Calls, step: Step) -> None:
    """Items are a row's vectors, each for one expert; a head's expert is its own."""
    matrix, value, out = calls.shared.matrix(step.weights), step.inputs[0], calls.output(step.outputs[0])
    items = calls.rows(value) * out.outer
    product = _product(calls, matrix, items, grouped=True)
    item = np.arange(items, dtype=np.int32)
    shared = out.outer if calls.place(value).outer == 1 else 1  # experts that read the same vector
    expert = calls.place(step.inputs[1]).ref if step.op == "expert_linear" else calls.array(item % out.outer)
    _multiply(calls, value, product, matrix, out.ref, {"expert": expert, "source": calls.array(item // shared)})


def _product(calls: Calls, matrix: Matrix, tokens: int, **how: bool) -> Product:
    device, exact = calls.shared.device, calls.shared.exact
    return Product(matrix.layout, tokens, matrix.gain, exact, **how, processors=device.processors, early=device.early)


def _multiply(calls: Calls, value: Value, product: Product, matrix: Matrix, out: Ref, names: dict[str, Ref]) -> None:
    names = names | matrix.arrays | {"out": out} | _activation(calls, value, product.activation, matrix.layout)
    names |= _room(calls, product.workspace)
    for call in product.calls:
        run(calls, call, names)


def _activation(calls: Calls, value: Value, kind: Activation, layout: Layout) -> dict[str, Ref]:
    """A value as a product reads it; made once for all products that read it so."""
    if (value.id, kind) in calls.prepared:
        return calls.prepared[value.id, kind]
    rows = _even(calls, value, kind)
    if kind == "f32":
        return {"x": rows.ref}
    items, stride = calls.rows(value) * rows.outer, rows.head if rows.outer > 1 else rows.row
    made = _room(calls, activation_arrays(kind, items, layout))
    call = prepare(kind, items, layout, stride, early=bool(calls.early))
    assert call is not None
    run(calls, call, {"x": rows.ref} | made)
    calls.prepared[value.id, kind] = made
    return made


def _even(calls: Calls, value: Value, kind: Activation) -> Place:
    """The value's vectors at even distances, and without gaps for a product that reads them as they are; or a copy."""
    place = calls.place(value)
    even = place.outer == 1 or place.row == place.outer * place.head
    stride = place.head if place.outer > 1 else place.row
    if even and (kind != "f32" or stride == place.inner):
        return place
    copy = calls.fresh(value)
    calls.copy(value, place, copy)
    calls.places[value.id] = copy
    return copy


@dataclass(frozen=True, slots=True)
class Wanted:
    """How products read a value: the kind of activation, its columns with their padding, and if others read it too."""

    kind: Activation
    padded: int
    others: bool


def prepared_for(calls: Calls, value: Value) -> tuple[Wanted, dict[str, Argument]] | None:
    """Room for a value as all products that read it want it, under the names of kernels' parameters.

    Whoever is given it must fill it. None where products do not agree, or read float32, or there are none.
    """
    kinds, others, layout = set[Activation](), False, None
    for index in calls.readers.of(value) if len(value.shape) == 1 and calls.readers.fuse else ():
        step = calls.readers.steps[index]
        if step.op == "linear":
            group = calls.readers.groups.get(index, (index,))
            layout = calls.shared.matrix([calls.readers.steps[i].weights[0] for i in group]).layout
            kinds.add(Product(layout, calls.rows(value), 1.0, calls.shared.exact).activation)
        else:
            others = True
    if layout is None or len(kinds) != 1 or kinds == {"f32"} or layout.padded > WIDEST:
        return None
    kind = kinds.pop()
    made = _room(calls, activation_arrays(kind, calls.rows(value), layout))
    calls.prepared[value.id, kind] = made
    return Wanted(kind, layout.padded, others), {name: made.get(name) for name in ("x8", "xd", "xs", "xf", "xe")}
