"""What lowering writes into: the kernel calls so far, and where the values are that they pass on."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Capacity
from llamina.backends.cpu.runtime.adapters import AdapterTable
from llamina.backends.cpu.runtime.arena import Argument, Buffer, Place, Ref, split_shape
from llamina.backends.cpu.runtime.call import KernelCall
from llamina.backends.cpu.runtime.exponents import ExponentTable
from llamina.ops import Link, State, Step, Value, Weight
from llamina.ops.batch import Batch
from llamina.plan import Plan
from llamina.quant import decode

Lower = Callable[["Emitter", Step], None]
Made = TypeVar("Made")
LOWERINGS: dict[str, Lower] = {}
"""How each operation becomes kernel calls; an operation that is not here has no kernel."""


def lowers(*operations: str) -> Callable[[Lower], Lower]:
    """Register a function as the lowering of some operations."""

    def register(function: Lower) -> Lower:
        for operation in operations:
            assert operation not in LOWERINGS, operation
            LOWERINGS[operation] = function
        return function

    return register


class Stop(NamedTuple):
    """So many calls are made, then a value's rows are added up over all ranks, then the others."""

    calls: int
    value: Value
    place: Place
    link: Link


class Emitter:
    """`calls` grows call by call; `buffers` are those that share the arena.

    `scratch` has a part for each thread; `partials` are partial results of attention that threads leave each other.
    """

    def __init__(
        self, plan: Plan, batch: Batch, capacity: Capacity, threads: int, states: dict[State, list[Ref]]
    ) -> None:
        from llamina.backends.cpu.lowering.scratch import partials_size, scratch_size  # asks what this CPU has

        self.batch, self.capacity, self.states = batch, capacity, states
        self.decodes = plan.causal  # otherwise all tokens of a sequence are computed together
        self.calls: list[KernelCall] = []
        self.buffers: list[Buffer] = []
        self.constants: list[npt.NDArray[Any]] = []  # arrays that calls point into
        self.exponent_tables: list[ExponentTable] = []
        self.adapters: dict[str, AdapterTable] = {}  # of matrices that adapters stand beside, by name
        self.scratch = Buffer(0)  # nothing to clash over, so no size
        self.scratch_size = scratch_size(plan, batch)
        self.partials_size = partials_size(plan, batch)
        self.partials = Buffer(self.partials_size * threads)
        self.logits = Buffer(4 * self.rows(plan.logits) * plan.vocab)
        self.step = 0  # the plan's step that calls are for
        self.stops: list[Stop] = []  # where threads stop for ranks to meet
        self._places: dict[int, Place] = {}
        self._made: dict[Hashable, Any] = {}
        for value, array in ((plan.tokens, batch.tokens), (plan.positions, batch.positions)):
            self.put(value, Place(self.fixed(array), 4, 4, 1, 1))
        if plan.rows is not None:
            width = batch.rows.shape[1]
            self.put(plan.rows, Place(self.fixed(batch.rows), 4 * width, 4 * width, 1, width))

    def emit(self, kernel: str, **args: Argument) -> None:
        """Write a call down."""
        self.calls.append(KernelCall(kernel, args, self.step))

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` returned when it was first called for this key: calls that several steps share."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    # ---- memory ------------------------------------------------------------------------------------------

    def new(self, nbytes: int) -> Ref:
        """Bytes of the arena."""
        self.buffers.append(Buffer(nbytes))
        return Ref(self.buffers[-1])

    def fixed(self, array: npt.NDArray[Any]) -> Ref:
        """An array that is already there, which outlives the program."""
        self.constants.append(array)
        return Ref(Buffer(array.nbytes, array.ctypes.data))

    def constant(self, w: Weight) -> Ref:
        """A small tensor as float32."""
        return self.fixed(np.ascontiguousarray(decode(w.data, w.format, w.shape)))

    def matrix(self, w: Weight) -> Ref:
        """A tensor as it is in the file."""
        return self.fixed(w.data)

    def exponents(self, w: Weight) -> Ref:
        """What the words of a float tensor are worth; it is found before the program runs."""
        self.exponent_tables.append(ExponentTable.of(w))
        return self.fixed(self.exponent_tables[-1].array)

    # ---- values ------------------------------------------------------------------------------------------

    def rows(self, value: Value) -> int:
        """How many rows a value has at the most."""
        return len(self.batch.tokens) if value.rows == "tokens" else len(self.batch.outputs)

    def count(self, value: Value) -> int:
        """The address of the number of rows that it has in a step."""
        return self.batch.counts.ctypes.data + (0 if value.rows == "tokens" else 8)

    def place(self, value: Value) -> Place:
        """Where a value is that was computed before."""
        return self._places[value.id]

    def put(self, value: Value, place: Place) -> None:
        """Say where a value is."""
        self._places[value.id] = place

    def has(self, value: Value) -> bool:
        return value.id in self._places

    def alias(self, value: Value, place: Place) -> None:
        """Let a value be what is at a place already; the logits, which have a place of their own, are copied there."""
        if self.has(value):
            self.copy(value, place, self.place(value))
        else:
            self.put(value, place)

    def output(self, value: Value) -> Place:
        """Where a value is to be written: new memory, unless a place was put for it."""
        if not self.has(value):
            outer, inner = split_shape(value.shape)
            row = 4 * outer * inner
            self.put(value, Place(self.new(row * self.rows(value)), row, 4 * inner, outer, inner))
        return self.place(value)

    def like(self, place: Place, value: Value) -> Place:
        """New memory of the same shape, contiguous."""
        row = 4 * place.outer * place.inner
        return Place(self.new(row * self.rows(value)), row, 4 * place.inner, place.outer, place.inner)

    def contiguous(self, value: Value) -> Place:
        """Where a value is, copied first if its heads lie apart."""
        return self._copied_unless(self.place(value).contiguous, value)

    def packed(self, value: Value) -> Place:
        """Where a value is, copied first unless the heads of all its rows lie one after the other."""
        return self._copied_unless(self.place(value).packed, value)

    def _copied_unless(self, fits: bool, value: Value) -> Place:
        if not fits:
            place = self.place(value)
            self.copy(value, place, copy := self.like(place, value))
            self.put(value, copy)
        return self.place(value)

    def copy(self, value: Value, source: Place, target: Place) -> None:
        """Copy a value from one place to another."""
        self.emit(
            "copy", count=self.count(value), **source.reading(), **target.writing(), **target.size(), constant=0.0
        )
