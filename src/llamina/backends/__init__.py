"""Each backend compiles a plan for one kind of device; nobody else knows a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from llamina.backends.states import Unit
from llamina.errors import RequestError
from llamina.ops import LowRank, State
from llamina.ops.batch import Batch
from llamina.plan import Plan

KvType = Literal["f16", "f32", "q8_0", "q4_0"]
BACKENDS = ("cpu", "reference")


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights are read from the file when their turn comes, so that few of them are resident at a time."""

    policy: Literal["budget", "pinned"]
    budget: int  # bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a program can hold at once."""

    pages: int
    slots: int
    kv_type: KvType = "f16"
    threads: int = 1
    offload: Offload | None = None
    near: int = 0  # places for pages of windowed layers; 0: they have memory for every page, as all have

    def unit(self, state: State) -> Unit:
        """What a state is counted by."""
        if state.kind == "recurrent":
            return "slot"
        return "near" if self.near and state.reach else "page"


class States(Protocol):
    """What sequences keep between steps, as bytes: keys and values by page (those of windowed layers by their place),
    recurrent states by slot."""

    def copy(self, unit: Unit, source: int, target: int) -> None: ...

    def size(self, unit: Unit) -> int:
        """Bytes of one of them."""
        ...

    def read(self, unit: Unit, index: int) -> bytes: ...

    def write(self, unit: Unit, index: int, data: bytes) -> None: ...


class Program(Protocol):
    """A plan made runnable, with the memory of its states."""

    @property
    def states(self) -> States: ...

    @property
    def workspace(self) -> int:
        """Bytes reserved for what is computed within a run."""
        ...

    def run(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Logits [outputs, vocab]; the array is overwritten by the next run."""
        ...

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        """Put an adapter into a slot, its pairs by the names of matrices; no pairs empty the slot."""
        ...

    def close(self) -> None: ...


def compile_plan(
    backend: str,
    plan: Plan,
    batch: Batch,
    capacity: Capacity,
    progress: Callable[[str, int, int], None] | None = None,
    before: Program | None = None,
) -> Program:
    """A program for this plan, batch buffers and capacity; one that takes the place of another keeps its states."""
    if backend == "reference":
        from llamina.backends.reference import ReferenceProgram

        if capacity.offload:
            raise RequestError("the reference backend decodes all weights: offload needs backend='cpu'", "offload")

        return ReferenceProgram(plan, capacity, before)
    if backend == "cpu":
        from llamina.backends.cpu.program import CpuProgram

        return CpuProgram(plan, batch, capacity, progress, before)
    raise RequestError(f"backend {backend!r} is not one of {', '.join(BACKENDS)}", "backend")


def state_shapes(state: State, capacity: Capacity, page: int) -> list[tuple[int, ...]]:
    """The arrays that keep a state: pages of keys (and values), or a block per slot."""
    if state.kind == "recurrent":
        return [(capacity.slots, *state.shape)]
    heads, key, value = state.shape
    count = capacity.near if capacity.unit(state) == "near" else capacity.pages
    keys = (count, heads, page, key)
    return [keys] if state.kind == "latent" else [keys, (count, heads, page, value)]


def state_bytes(plan: Plan, kv_type: KvType, page: int) -> dict[Unit, int]:
    """About how many bytes a page, a windowed layers' place for one, and a slot take."""
    size = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}[kv_type]
    one = Capacity(1, 1, kv_type, near=1)
    found: dict[Unit, float] = {"page": 0.0, "near": 0.0, "slot": 0.0}
    for state in plan.states:
        numbers = sum(prod(shape) for shape in state_shapes(state, one, page))
        found[one.unit(state)] += numbers * (4 if state.kind == "recurrent" else size)
    return {unit: int(nbytes) for unit, nbytes in found.items()}
