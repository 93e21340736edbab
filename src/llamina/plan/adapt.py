"""LoRA as a pass over a plan: a step behind each adapted matrix adds what adapters make of its input."""

from collections.abc import Collection
from dataclasses import replace

from llamina.ops import Step
from llamina.plan.record import Plan

OPS = ("linear", "expert_linear", "embed")


def adaptable(plan: Plan) -> dict[str, Step]:
    """The first step of each matrix that can be adapted, by the matrix's name.

    Embeddings that are tied to the output matrix are adapted as embeddings only; a matrix with a scale, which comes
    after it, is not adapted.
    """
    found: dict[str, Step] = {}
    for step in plan.steps:
        if step.op in OPS and (step.op != "embed" or step.inputs[0] is plan.tokens):
            found.setdefault(step.weights[0].name, step)
    return {name: step for name, step in found.items() if step.weights[0].scale is None}


def adapt(plan: Plan, matrices: Collection[str]) -> Plan:
    """The plan with an `adapt` step behind these matrices. It changes nothing for rows that use no adapter."""
    chosen = {name: step.op for name, step in adaptable(plan).items() if name in matrices}
    steps: list[Step] = []
    for step in plan.steps:
        name = step.weights[0].name if step.weights else ""
        if chosen.get(name) != step.op:
            steps.append(step)
            continue
        out = step.outputs[0]
        plain = replace(out, id=out.tape.new_id())
        inputs = (step.inputs[0], plain, *step.inputs[1:])
        steps += [
            replace(step, outputs=(plain,)),
            Step("adapt", inputs, (), (out,), {"matrix": name, "op": step.op}),
        ]
    return replace(plan, steps=tuple(steps))
