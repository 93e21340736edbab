"""From a plan's steps to kernel calls: which kernel, with which arguments, in which memory.

Each module registers how some operations are lowered; an operation that is in no table has no kernel.
"""

from llamina.backends.base import Capacity
from llamina.backends.cpu.lowering import adapters, attention, matmul, pointwise, recurrent  # noqa: F401 (register)
from llamina.backends.cpu.lowering.emitter import LOWERINGS, Emitter
from llamina.backends.cpu.runtime.arena import Place, Ref
from llamina.ops import State, Value
from llamina.ops.batch import Batch
from llamina.plan import Plan

__all__ = ["LOWERINGS", "Emitter", "Outputs", "lower"]

Outputs = list[list[tuple[Value, Place]]]
"""The values that each step of the plan computes, and where they are when it has run."""


def lower(
    plan: Plan, batch: Batch, capacity: Capacity, threads: int, states: dict[State, list[Ref]]
) -> tuple[Emitter, Outputs]:
    """The calls of a plan whose operations all have kernels, and where the outputs of its steps are."""
    emitter = Emitter(plan, batch, capacity, threads, states)
    outputs: Outputs = []
    for emitter.step, step in enumerate(plan.steps):
        for value in step.outputs:
            if value is plan.logits:
                emitter.put(value, Place(Ref(emitter.logits), 4 * value.size, 0, 1, value.size))
        LOWERINGS[step.op](emitter, step)
        outputs.append([(value, emitter.place(value)) for value in step.outputs])
    return emitter, outputs
