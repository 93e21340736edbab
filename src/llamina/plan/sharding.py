"""The walk over a plan that divides it among ranks: layouts of values, and decisions that are changed on the way."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import lcm, prod
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from llamina.errors import UnsupportedModel
from llamina.ops import State, Step, Value, Weight
from llamina.ops.link import Link
from llamina.plan.layout import Cut, Layout, Origin, Segment, Share
from llamina.plan.record import Plan
from llamina.plan.split import LAYER

ONE = Fraction(1)
THROUGH = ("add", "mul", "scale", "at_most", "at_least")  # what lies between a product and what it is sliced into


class _Again(Exception):
    """A decision was changed."""


class Decisions:
    """Which products are not divided, and why; and the units of the others, by step and segment.

    What is decided of a product holds for those of the same name and shape in other layers too: that is right of most
    models, never wrong, and saves walks.
    """

    def __init__(self, plan: Plan) -> None:
        self.whole: dict[int, str] = {}
        self.units: dict[tuple[int, int], int] = {}
        alike: dict[Hashable, list[int]] = {}
        self._alike: dict[int, list[int]] = {}
        for index, step in enumerate(plan.steps):
            if step.weights:
                w = step.weights[0]
                self._alike[index] = alike.setdefault((step.op, LAYER.sub("", w.name), w.shape, w.format.name), [])
                self._alike[index].append(index)

    def keep_whole(self, step: int, why: str) -> None:
        for other in self._alike[step]:
            self.whole.setdefault(other, why)

    def enlarge(self, step: int, segment: int, unit: int) -> bool:
        """Have units be multiples of this one, too; whether that changes anything."""
        before = self.units.get((step, segment), 1)
        for other in self._alike[step]:
            self.units[other, segment] = lcm(before, unit)
        return lcm(before, unit) != before


Taken = dict[Hashable, npt.NDArray[np.uint8]]
"""Parts of weights that were taken before."""


def walk(plan: Plan, link: Link, apply: Callable[["Sharding", Step], None], taken: Taken) -> Plan:
    """One rank's plan: `apply` writes its steps, and may have the walk begin again. Raises UnsupportedModel."""
    decided = Decisions(plan)
    while True:
        sharding = Sharding(plan, link, decided)
        try:
            for sharding.index, step in enumerate(plan.steps):
                apply(sharding, step)
            logits = sharding.whole(plan.logits, "every rank needs the logits")
        except _Again:
            continue
        if not any(step.op == "all_reduce" for step in sharding.steps):
            reasons = "; ".join([*dict.fromkeys(decided.whole.values())][:3]) or "it has no products of matrices"
            raise UnsupportedModel(f"nothing of the model can be divided among {link.size} ranks: {reasons}")
        states = tuple(sharding.states.get(state, state) for state in plan.states)
        return replace(plan, logits=logits, steps=sharding.finished(taken), states=states)


class Sharding:
    """One walk over a plan. `steps` are the rank's; values and states are looked up by those of the whole plan."""

    def __init__(self, plan: Plan, link: Link, decided: Decisions) -> None:
        self.plan, self.link, self.decided = plan, link, decided
        self.rank, self.ranks = link.rank, link.size
        self.index = 0
        self.steps: list[Step] = []
        self.states: dict[State, State] = {}
        self._cuts_of: dict[Weight, Cut] = {}
        self._found: dict[int, tuple[Value, Layout]] = {}
        self._readers: dict[int, list[Step]] = {}
        for step in plan.steps:
            for value in step.inputs:
                self._readers.setdefault(value.id, []).append(step)

    # ---- decisions -----------------------------------------------------------------------------------------------

    def refuse(self, share: Share, why: str) -> NoReturn:
        """Begin again without dividing the products that this comes from."""
        for origin in share.origins:
            self.decided.keep_whole(origin.step, why)
        raise _Again

    def enlarge(self, segment: Segment, unit: int, why: str) -> NoReturn:
        """Begin again with larger units; undivided, if there are fewer of them than ranks."""
        changed = False
        for step, index, factor in segment.origins:
            changed |= self.decided.enlarge(step, index, (unit * factor).numerator)
            if self.decided.units[step, index] * self.ranks > segment.size * factor:
                self.decided.keep_whole(step, why)
        if not changed:
            self.refuse(Share(0, (segment,)), why)
        raise _Again

    def begin(self, value: Value, axis: int, why: str) -> Share | None:
        """A new division of the output of the current step, unless it was decided that there is none."""
        if self.index in self.decided.whole:
            return None
        segments = []
        for i, size in enumerate(self._cuts(value)):
            unit = self.decided.units.get((self.index, i), 1)
            if size // unit < self.ranks or size % unit:
                self.decided.keep_whole(self.index, why)
                return None
            segments.append(Segment(size, unit, frozenset([Origin(self.index, i, ONE)])))
        return Share(axis, tuple(segments))

    def _cuts(self, value: Value) -> list[int]:
        """The sizes of what the last dimension is sliced into, if it is; each is divided by itself."""
        readers = self._readers.get(value.id, [])
        while len(readers) == 1 and readers[0].op in THROUGH and readers[0].inputs[0].id == value.id:
            value = readers[0].outputs[0]
            readers = self._readers.get(value.id, [])
        size, cuts = value.shape[-1], {0, value.shape[-1]}
        for step in readers:
            if step.op != "slice":
                return [size]
            cuts |= {step.attrs["start"], step.attrs["start"] + step.outputs[0].shape[-1]}
        ends = sorted(cuts)
        return [b - a for a, b in pairwise(ends)]

    # ---- values --------------------------------------------------------------------------------------------------

    def layout(self, value: Value) -> Layout:
        return self._found[value.id][1] if value.id in self._found else "whole"

    def local(self, value: Value) -> Value:
        """What this rank has of it."""
        return self._found[value.id][0] if value.id in self._found else value

    def whole(self, value: Value, why: str) -> Value:
        """All of a value: terms are added up, and a division is refused."""
        layout = self.layout(value)
        if isinstance(layout, Share):
            self.refuse(layout, why)
        if layout == "partial":
            out = replace(value, id=value.tape.new_id())
            self.steps.append(Step("all_reduce", (self.local(value),), (), (out,), {"link": self.link}))
            self._found[value.id] = out, "whole"
        return self.local(value)

    def part(self, value: Value, share: Share) -> Value:
        """This rank's part of a value by a division of one segment; cut out of the whole, if it is not divided."""
        if isinstance(self.layout(value), Share):
            return self.local(value)
        if len(share.segments) > 1 or prod(value.shape[: share.axis]) > 1:
            self.refuse(share, "parts that do not lie together cannot be taken")
        return self.cut(value, share.axis, *share.ranges(self.rank, self.ranks)[0])

    def cut(self, value: Value, axis: int, first: int, last: int) -> Value:
        """Some elements along an axis of a value that is whole; there are none before that axis."""
        whole, after = self.whole(value, ""), prod(value.shape[axis + 1 :])
        flat = self._view("reshape", whole, (value.size,)) if len(value.shape) > 1 else whole
        flat = self._view("slice", flat, ((last - first) * after,), {"start": first * after})
        shape = (*value.shape[:axis], last - first, *value.shape[axis + 1 :])
        return self._view("reshape", flat, shape) if len(shape) > 1 else flat

    def _view(self, op: str, x: Value, shape: tuple[int, ...], attrs: dict[str, int] | None = None) -> Value:
        out = replace(x, id=x.tape.new_id(), shape=shape)
        self.steps.append(Step(op, (x,), (), (out,), dict(attrs or {})))
        return out

    # ---- steps ---------------------------------------------------------------------------------------------------

    def emit(
        self,
        step: Step,
        inputs: list[Value],
        layout: Layout,
        weights: list[Weight] | None = None,
        **changes: Any,
    ) -> None:
        """The step on this rank; its output has that layout."""
        value = step.outputs[0]
        if isinstance(layout, Share):
            shape = list(value.shape)
            shape[layout.axis] = layout.local(self.rank, self.ranks)
            value = replace(value, shape=tuple(shape))
        outputs = (value, *step.outputs[1:])
        kept = step.weights if weights is None else tuple(weights)
        self.steps.append(replace(step, inputs=tuple(inputs), weights=kept, outputs=outputs, **changes))
        self._found[value.id] = value, layout

    def rows(self, w: Weight, axis: int, share: Share) -> Weight:
        """This rank's part of a weight along an axis that is divided so; in whole blocks along the last one."""
        ranges = share.ranges(self.rank, self.ranks)
        block = w.format.block if axis == len(w.shape) - 1 else 1
        for segment in share.segments:
            if segment.unit % block:
                why = f"{w.name} has too few blocks of {block} in a row"
                self.enlarge(segment, lcm(segment.unit, block), why)
        cut = Cut(w, axis, tuple(ranges))
        found = cut.named(f"[{self.rank} of {self.ranks}]")
        self._cuts_of[found] = cut
        return found

    def finished(self, taken: Taken) -> tuple[Step, ...]:
        """The steps, now that they are decided upon, with the bytes of their weights."""
        for cut in self._cuts_of.values():
            if cut.key not in taken:
                taken[cut.key] = cut.take()
        whole = {w: replace(w, data=taken[cut.key]) for w, cut in self._cuts_of.items()}
        return tuple(replace(step, weights=tuple(whole.get(w, w) for w in step.weights)) for step in self.steps)
