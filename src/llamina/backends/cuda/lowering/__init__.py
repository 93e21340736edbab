"""From a plan's steps to launches: which kernel, how many programs of it, with which arguments, in which memory."""

from llamina.backends.base import Capacity
from llamina.backends.cuda.adapters import Table
from llamina.backends.cuda.bucket import Bucket
from llamina.backends.cuda.inputs import Inputs
from llamina.backends.cuda.lowering import (  # noqa: F401 (they fill the table)
    adapted,
    attention,
    matrices,
    plain,
    recurrent,
    routing,
)
from llamina.backends.cuda.lowering.calls import OPS, Calls
from llamina.backends.cuda.lowering.matrices import MATRICES
from llamina.backends.cuda.memory import Place, Ref
from llamina.backends.cuda.shared import Shared
from llamina.plan import Plan

__all__ = ["MATRICES", "OPS", "Calls", "lower"]


def lower(
    plan: Plan,
    bucket: Bucket,
    shared: Shared,
    inputs: Inputs,
    capacity: Capacity,
    tables: dict[str, Table],
    logits: Ref,
) -> Calls:
    """The launches of a plan for steps of one size; logits are written to `logits`."""
    calls = Calls(bucket, shared, inputs, capacity, tables)
    for value, name in ((plan.tokens, "tokens"), (plan.positions, "positions")):
        calls.places[value.id] = Place(inputs.refs[name], 1, 1, 1, 1)
    for calls.step, step in enumerate(plan.steps):
        for value in step.outputs:
            if value is plan.logits:
                calls.places[value.id] = Place(logits, value.size, 0, 1, value.size)
        OPS[step.op](calls, step)
    return calls
