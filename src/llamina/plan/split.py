"""A plan divided between two layers, for two devices: the second plan begins with what the first one ends with."""

import re
from dataclasses import replace
from typing import NamedTuple

from llamina.errors import UnsupportedModel
from llamina.ops import State, Step, Value
from llamina.plan.record import Plan

LAYER = re.compile(r"(?:^|\.)blk\.(\d+)\.")
VIEWS = ("reshape", "slice")  # what they make lies where their input does


class Halves(NamedTuple):
    """`first` ends with a row of numbers for each token, which `second` has as its `rows`: the residual stream."""

    first: Plan
    second: Plan


def layer_of(step: Step) -> int | None:
    """The layer whose weights or states a step uses; None if it uses none."""
    names = [str(step.attrs["matrix"])] if step.op == "adapt" else [w.name for w in step.weights]
    found = [int(match[1]) for name in names if (match := LAYER.search(name))]
    return max(found) if found else step.states[0].layer if step.states else None


def count_layers(plan: Plan) -> int:
    """How many layers a plan has."""
    return max((layer for step in plan.steps if (layer := layer_of(step)) is not None), default=-1) + 1


def split(plan: Plan, layer: int) -> Halves:
    """The layers below `layer`, with what is before all layers; and those from it on, with what is after them.

    `layer` is from 1 to the number of layers. Raises UnsupportedModel where layers cannot be told apart so.
    """
    cut = _cut(plan, layer)
    handed = _handed(plan, cut)
    kept, rest = plan.steps[:cut], plan.steps[cut:]
    _check_states(plan, kept, rest, layer)
    joined, joining = _join(handed, kept)
    rows, taking_apart = _take_apart(handed)
    return Halves(
        replace(plan, logits=joined, steps=(*kept, *joining), states=_states(plan, kept)),
        replace(plan, steps=(*taking_apart, *rest), states=_states(plan, rest), rows=rows),
    )


def _cut(plan: Plan, layer: int) -> int:
    """The index of the first step behind the cut: where the fewest numbers are handed over."""
    layers = [layer_of(step) for step in plan.steps]
    start = max((i + 1 for i, found in enumerate(layers) if found is not None and found < layer), default=0)
    end = min((i for i, found in enumerate(layers) if found is not None and found >= layer), default=len(layers))
    if start > end:
        step = plan.steps[start - 1]
        raise UnsupportedModel(
            f"{step.name or step.op} is computed after a step of layer {layer}, so that layers below {layer} cannot be "
            "computed apart from the others"
        )
    sizes = {i: sum(v.size for v in found) for i in range(start, end + 1) if _whole(found := _handed(plan, i))}
    if not sizes:
        raise UnsupportedModel(f"what layer {layer} reads of those below it is not a row of numbers for each token")
    return min(sizes, key=lambda i: sizes[i])


def _handed(plan: Plan, cut: int) -> list[Value]:
    """The values that are computed before a step and read from it on."""
    read = {value.id for step in plan.steps[cut:] for value in step.inputs} | {plan.logits.id}
    return [value for step in plan.steps[:cut] for value in step.outputs if value.id in read]


def _whole(handed: list[Value]) -> bool:
    return bool(handed) and all(value.rows == "tokens" and not value.integer for value in handed)


def _states(plan: Plan, steps: tuple[Step, ...]) -> tuple[State, ...]:
    used = {state for step in steps for state in step.states}
    return tuple(state for state in plan.states if state in used)


def _check_states(plan: Plan, kept: tuple[Step, ...], rest: tuple[Step, ...], layer: int) -> None:
    for state in _states(plan, kept):
        if state in _states(plan, rest):
            raise UnsupportedModel(f"{state.name} is used by layers below {layer} and by others: they share a device")


def _join(values: list[Value], steps: tuple[Step, ...]) -> tuple[Value, list[Step]]:
    """One row of all values, and the steps that make it. It is computed, not a view: programs write it to its place."""
    made: list[Step] = []
    joined: Value | None = None
    for value in values:
        flat = value
        if len(value.shape) != 1:
            flat = _like(value, value.size)
            made.append(Step("reshape", (value,), (), (flat,)))
        if joined is None:
            joined = flat
        else:
            both = _like(value, joined.size + flat.size)
            made.append(Step("concat", (joined, flat), (), (both,)))
            joined = both
    assert joined is not None
    source = next(step for step in reversed([*steps, *made]) if joined in step.outputs)
    if source.op in VIEWS:
        copy = _like(joined, joined.size)
        made.append(Step("scale", (joined,), (), (copy,), {"factor": 1.0}))
        joined = copy
    return joined, made


def _take_apart(values: list[Value]) -> tuple[Value, list[Step]]:
    """The row of all values as the second plan's input, and the steps that make them of it again."""
    if len(values) == 1 and len(values[0].shape) == 1:
        return values[0], []
    rows = _like(values[0], sum(value.size for value in values))
    made: list[Step] = []
    start = 0
    for value in values:
        flat = value if len(value.shape) == 1 else _like(value, value.size)
        made.append(Step("slice", (rows,), (), (flat,), {"start": start}))
        if flat is not value:
            made.append(Step("reshape", (flat,), (), (value,)))
        start += value.size
    return rows, made


def _like(value: Value, size: int) -> Value:
    return replace(value, id=value.tape.new_id(), shape=(size,))
