"""From a plan's steps to launches: which kernel, how many programs of it, with which arguments, in which memory."""

from llamina.backends.cuda.lowering import (  # noqa: F401 (they fill the table)
    adapted,
    attention,
    matrices,
    plain,
    recurrent,
    routing,
)
from llamina.backends.cuda.lowering.calls import OPS, Calls, Stop
from llamina.backends.cuda.memory import Place, Ref
from llamina.plan import Plan

__all__ = ["OPS", "Calls", "Stop", "lower"]


def lower(plan: Plan, calls: Calls, logits: Ref, ids: Ref) -> None:
    """Write the launches of a plan; logits go to `logits`, and `ids` are the tokens that were chosen last."""
    grid, args = calls.inputs.fetching(calls.bucket.sequences)
    calls.emit("inputs.fetch", grid, **args, ids=ids, EARLY=calls.early)
    for value, name in ((plan.tokens, "tokens"), (plan.positions, "positions")):
        calls.places[value.id] = Place(calls.inputs.refs[name], 1, 1, 1, 1)
    if plan.rows is not None:
        width = plan.rows.size
        calls.places[plan.rows.id] = Place(calls.inputs.refs["rows"], width, width, 1, width)
    size = plan.logits.size
    calls.places[plan.logits.id] = Place(logits, size, 0, 1, size)
    for calls.step, step in enumerate(plan.steps):
        if calls.step not in calls.done:
            OPS[step.op](calls, step)
