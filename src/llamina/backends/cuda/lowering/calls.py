"""The launches written so far, and the places of the values they pass on."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from llamina.backends.base import Capacity
from llamina.backends.cuda.adapters import Table
from llamina.backends.cuda.bucket import Bucket, power
from llamina.backends.cuda.device import Argument, Constant, Grid, Launch, launch_of
from llamina.backends.cuda.inputs import Inputs
from llamina.backends.cuda.memory import Buffer, Place, Ref, split_shape
from llamina.backends.cuda.shared import Shared
from llamina.ops import Link, Step, Value, Weight
from llamina.plan.fusion import Readers

Lower = Callable[["Calls", Step], None]
OPS: dict[str, Lower] = {}


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Enter a function as the one that writes the launches of these operations."""

    def register(function: Lower) -> Lower:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


class Turning(NamedTuple):
    """What is to be rotated, and the arguments that say how."""

    x: Place
    angles: dict[str, Argument]


class Norming(NamedTuple):
    """A norm that is left to the products that read it: of what, by which weight."""

    x: Place
    w: Ref
    eps: float


class Stop(NamedTuple):
    """So many launches are made, then a value is added up over all ranks, then the others."""

    launches: int
    value: Value
    place: Place
    link: Link


class Calls:
    """`launches` grows one by one; `buffers` are the arena's tenants."""

    def __init__(
        self,
        bucket: Bucket,
        readers: Readers,
        shared: Shared,
        inputs: Inputs,
        capacity: Capacity,
        tables: dict[str, Table],
    ) -> None:
        self.bucket, self.readers, self.shared = bucket, readers, shared
        self.inputs, self.capacity = inputs, capacity
        self.tables = tables  # of adapted matrices, by name
        self.launches: list[Launch] = []
        self.buffers: list[Buffer] = []
        self.places: dict[int, Place] = {}  # by the ids of values
        self.made: dict[Any, Ref] = {}  # what several steps of the plan read, such as angles of rotation
        self.prepared: dict[tuple[int, str], dict[str, Ref]] = {}  # values as products read them, by id and kind
        self.turning: dict[int, Turning] = {}  # values that are still to be rotated
        self.norming: dict[int, Norming] = {}  # values whose norm is left to products
        self.done: set[int] = set()  # steps of the plan that launches of earlier ones have computed
        self.stops: list[Stop] = []  # where ranks of a divided model meet
        self.step = 0

    def emit(self, name: str, grid: Grid, warps: int = 4, stages: int = 3, /, **args: Argument | Constant) -> None:
        """Launch a kernel. Arguments in capitals are constants that it is compiled for."""
        constants = {key: value for key, value in args.items() if key.isupper() and not isinstance(value, Ref)}
        passed: dict[str, Any] = {key: value for key, value in args.items() if key not in constants}
        self.launch(name, grid, warps, stages, passed, constants)  # type: ignore[arg-type]

    def launch(
        self,
        name: str,
        grid: Grid,
        warps: int,
        stages: int,
        args: Mapping[str, Argument],
        constants: Mapping[str, Constant],
    ) -> None:
        """Launch a kernel, if there is anything to do; arguments that are None are constants too."""
        if min(grid):
            for value in args.values():
                if isinstance(value, Ref):
                    value.buffer.touch(len(self.launches))
            self.launches.append(launch_of(name, grid, warps, stages, args, constants, self.step))

    @property
    def early(self) -> int:
        """1 if kernels may begin while the one before them ends; those that have EARLY wait by themselves."""
        return int(self.shared.device.early)

    def rows(self, value: Value) -> int:
        """The most rows that a value has in a step of this size."""
        return self.bucket.rows(value)

    def count(self, value: Value) -> Ref:
        """Where the number of a value's rows is."""
        return self.inputs.refs["counts"].at(0 if value.rows == "tokens" else 1)

    @property
    def sequences(self) -> Ref:
        """Where the number of sequences is."""
        return self.inputs.refs["counts"].at(2)

    def new(self, elements: int, type: str = "fp32") -> Ref:
        """Room in the arena for elements of 4 bytes."""
        self.buffers.append(Buffer(4 * elements))
        return Ref(self.buffers[-1], 0, type)

    def place(self, value: Value) -> Place:
        return self.places[value.id]

    def output(self, value: Value) -> Place:
        """Where to write a value."""
        if value.id not in self.places:
            self.places[value.id] = self.fresh(value)
        return self.places[value.id]

    def fresh(self, value: Value) -> Place:
        """A new place for a value's numbers, contiguous."""
        outer, inner = split_shape(value.shape)
        ref = self.new(outer * inner * self.rows(value), "i32" if value.integer else "fp32")
        return Place(ref, outer * inner, inner, outer, inner)

    def alias(self, value: Value, place: Place) -> None:
        """Let a value be what is at a place already; the logits, which have a place of their own, are copied."""
        if value.id in self.places:
            self.copy(value, place, self.places[value.id])
        else:
            self.places[value.id] = place

    def contiguous(self, value: Value) -> Place:
        """The value's place, copied if a row's elements are scattered."""
        place = self.place(value)
        if place.contiguous:
            return place
        copy = self.fresh(value)
        self.copy(value, place, copy)
        self.places[value.id] = copy
        return copy

    def copy(self, value: Value, source: Place, target: Place) -> None:
        """Rows of one place to another."""
        self.emit(
            "elementwise.unary", self.elements(value, target), **self.spread(value, target), **reading(source),
            **writing(target), constant=0.0, KIND="copy", EARLY=self.early,
        )  # fmt: skip

    def turn(self, value: Value) -> None:
        """Rotate a value now."""
        x, angles = self.turning.pop(value.id)
        out = self.output(value)
        self.emit(
            "rope.rotate", self.elements(value, out), **self.spread(value, out), **reading(x), **writing(out), **angles
        )

    def elements(self, value: Value, place: Place) -> Grid:
        """Programs for each element of a value's rows."""
        return self.rows(value), -(-place.width // block_of(place)), 1

    def spread(self, value: Value, place: Place) -> dict[str, Argument]:
        """What kernels that go through all elements must know."""
        return {"count": self.count(value), "outer": place.outer, "inner": place.inner, "BLOCK": block_of(place)}

    def constant(self, w: Weight) -> Ref:
        """A small tensor as float32."""
        return self.shared.constant(w)

    def array(self, array: npt.NDArray[Any]) -> Ref:
        return self.shared.array(array)


def block_of(place: Place) -> int:
    """Elements of a row that one program of an elementwise kernel takes."""
    return max(64, min(1024, power(place.width)))


def reading(x: Place) -> dict[str, Argument]:
    return {"x": x.ref, "x_row": x.row, "x_head": x.head}


def writing(out: Place) -> dict[str, Argument]:
    return {"out": out.ref, "out_row": out.row, "out_head": out.head}
