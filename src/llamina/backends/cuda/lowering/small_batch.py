"""Products of one token or two: kernels that begin with the norm before them and end with the gate behind them."""

from dataclasses import replace

from llamina.backends.cuda.kernels.calls import Input
from llamina.backends.cuda.kernels.fused import fits, gated, single, together
from llamina.backends.cuda.loading import halves
from llamina.backends.cuda.lowering.after_products import Products, products_at, run, without_endings
from llamina.backends.cuda.lowering.calls import Calls, Norming
from llamina.backends.cuda.memory import Ref
from llamina.ops import Step, Value

TOKENS = 2
MOST = 3  # matrices of different formats that one kernel takes
GATES = ("silu", "gelu")


def postpones(calls: Calls, value: Value) -> bool:
    """Whether a norm can be left to the products that read it: all that read it are some, and few."""
    readers = calls.readers.of(value)
    if (
        not calls.readers.fuse
        or not readers
        or any(calls.readers.steps[i].op != "linear" for i in readers)
        or len(value.shape) > 1
    ):
        return False
    groups = _groups(calls, value)
    return len(groups) <= MOST and all(_fits(calls, value, group) for group in groups)


def _groups(calls: Calls, value: Value) -> list[int]:
    """The first steps of the products that read a value."""
    members = {i for group in calls.readers.groups.values() for i in group[1:]}
    return [i for i in calls.readers.of(value) if i not in members]


def _fits(calls: Calls, value: Value, index: int) -> bool:
    layout = calls.shared.matrix(products_at(calls, index).weights).layout
    return not calls.shared.exact and calls.rows(value) <= TOKENS and fits(layout, calls.rows(value))


def multiply(calls: Calls, step: Step) -> bool:
    """Write the launch of a product, and of all others that read the same norm; False if it is none of these."""
    value = step.inputs[0]
    norming = calls.norming.get(value.id)
    if norming is None:
        if (value.id, "q8") in calls.prepared or len(value.shape) > 1 or not _fits(calls, value, calls.step):
            return False
        _single(calls, value, products_at(calls, calls.step), None)
        return True
    groups = [products_at(calls, i) for i in _groups(calls, value)]
    if len(groups) == 1:
        _single(calls, value, groups[0], norming)
    else:
        _together(calls, value, groups, norming)
    return True


def _single(calls: Calls, value: Value, products: Products, norming: Norming | None) -> None:
    matrix, device = calls.shared.matrix(products.weights), calls.shared.device
    x = norming.x if norming else calls.place(value)
    names = {"x": x.ref} | ({"norm": norming.w} if norming else {})
    kind: Input = "norm" if norming else "f32"
    eps, tokens = norming.eps if norming else 0.0, calls.rows(value)
    if (gate := _gate(calls, products)) is not None:
        layout, first, second = halves(matrix)
        if gate.inputs[0] is not products.endings[0].out:
            first, second = second, first
        call = gated(layout, tokens, kind, gate.attrs["kind"], x.row, eps, device.early, device.processors)
        names |= first | {f"{name}2": ref for name, ref in second.items()}
        run(calls, call, names | {"out": calls.output(gate.outputs[0]).ref})
        calls.done.add(calls.readers.of(products.endings[0].out)[0])
        products.finish(calls)
        return
    add = products.endings[0].add is not None
    call = single(matrix.layout, tokens, kind, x.row, eps, add, products.biased, device.early, device.processors)
    names |= matrix.arrays | products.names | ({"bias": products.bias(calls)} if products.biased else {})
    products.finish(calls)
    run(calls, call, names | {"out": products.out(calls)})


def _gate(calls: Calls, products: Products) -> Step | None:
    """The step that multiplies the activation of the first of two products by the second, if nobody else reads them."""
    if len(products.endings) != 2 or products.biased:
        return None
    first, second = (ending.out for ending in products.endings)
    index = calls.readers.only(first)
    step = calls.readers.steps[index] if index is not None else None
    if step is None or step.op != "gated" or step.attrs["kind"] not in GATES or first.size != second.size:
        return None
    return step if calls.readers.only(second) == index else None


def _together(calls: Calls, value: Value, groups: list[Products], norming: Norming) -> None:
    """Products with matrices of several formats."""
    if not all(group.biased for group in groups) or any(group.endings[0].add for group in groups):
        groups = [without_endings(group, calls.readers.steps) for group in groups]
    matrices, device = [calls.shared.matrix(group.weights) for group in groups], calls.shared.device
    biased = groups[0].biased
    call = together(
        [matrix.layout for matrix in matrices], calls.rows(value), "norm", norming.x.row, norming.eps, biased,
        device.early, device.processors,
    )  # fmt: skip
    names: dict[str, Ref] = {"x": norming.x.ref, "norm": norming.w}
    for i, (group, matrix) in enumerate(zip(groups, matrices, strict=True)):
        end = str(i + 1) if i else ""
        group.finish(calls)
        names |= {f"{name}{end}": ref for name, ref in matrix.arrays.items()} | {f"out{end}": group.out(calls)}
        names |= {f"bias{end}": group.bias(calls)} if biased else {}
    if len(groups) < MOST:  # the kernel is compiled for three, the last being like the second
        more = {f"{name[:-1]}3": name for name in names if name.endswith("2")}
        call = replace(call, args={**call.args, **more})
    run(calls, call, names)
