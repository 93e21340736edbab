"""Fusion: who reads what in a plan, and which of its products can be one. For any device."""

from collections.abc import Callable

from llamina.ops import Step, Value, Weight
from llamina.plan.record import Plan

MATRICES = ("embed", "linear", "head_linear", "expert_linear")  # operations whose weight is one


class Readers:
    """The steps of a plan by what they read. Without `fuse`, no step is computed together with another.

    `joins` says whether the rows of a matrix can lie among those of others on a device.
    """

    def __init__(self, plan: Plan, joins: Callable[[Weight], bool], fuse: bool = True) -> None:
        self._can_join = joins
        self.steps, self._logits = plan.steps, plan.logits.id
        self._by: dict[int, list[int]] = {}
        for index, step in enumerate(plan.steps):
            for value in step.inputs:
                self._by.setdefault(value.id, []).append(index)
        self.fuse = fuse
        self.groups = {group[0]: group for group in self._groups()} if fuse else {}

    def of(self, value: Value) -> list[int]:
        """The indexes of the steps that read a value."""
        return self._by.get(value.id, [])

    def only(self, value: Value) -> int | None:
        """The one step that reads a value; None if there are several, or if it is the plan's result."""
        found = self.of(value)
        return found[0] if self.fuse and len(found) == 1 and value.id != self._logits else None

    def matrices(self) -> list[tuple[Weight, ...]]:
        """The weights that the plan multiplies or looks up, those of one product together."""
        members = {index for group in self.groups.values() for index in group[1:]}
        found = []
        for index, step in enumerate(self.steps):
            if step.op in MATRICES and index not in members:
                group = self.groups.get(index, (index,))
                found.append(tuple(self.steps[i].weights[0] for i in group))
        return found

    def _groups(self) -> list[tuple[int, ...]]:
        """Products of one vector with several matrices of one format, which are computed as one."""
        found: list[tuple[int, ...]] = []
        taken: set[int] = set()
        for index, step in enumerate(self.steps):
            if index in taken or not self._joins(step):
                continue
            group = [index]
            for other in self.of(step.inputs[0]):
                if other > index and self._joins(self.steps[other]) and _alike(step, self.steps[other]):
                    group.append(other)
            if len(group) > 1:
                found.append(tuple(group))
                taken.update(group)
        return found

    def _joins(self, step: Step) -> bool:
        """Whether a step is a product whose rows can lie among those of others."""
        if step.op != "linear" or len(step.inputs[0].shape) > 1 or step.outputs[0].id == self._logits:
            return False
        return self._can_join(step.weights[0])


def _alike(step: Step, other: Step) -> bool:
    return step.weights[0].format.name == other.weights[0].format.name
