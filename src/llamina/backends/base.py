"""The seam to a device: what the engine asks of a backend, and what it gets back.

`Backend.compile` makes a `Program` of a plan; `Program.launch` begins a step on a filled `Batch` and returns a
`Pending`, whose `result` waits for the logits. So a device may compute while the host prepares what comes after.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from llamina.ops import LowRank, State, Unit
from llamina.ops.batch import PAGE, Batch
from llamina.plan import Plan

KvType = Literal["f16", "f32", "q8_0", "q4_0"]
UNITS: tuple[Unit, ...] = get_args(Unit)
Progress = Callable[[str, int, int], None]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much state a program holds: pages of the KV cache, pages of its sliding-window layers, recurrent slots."""

    pages: int
    slots: int
    kv_type: KvType = "f16"
    window_pages: int = 0  # 0: layers with a sliding window have memory for every page, as all others have

    def unit(self, state: State) -> Unit:
        """What a state is counted by."""
        if state.kind == "recurrent":
            return "slot"
        return "window" if self.window_pages and state.reach else "page"

    def count(self, unit: Unit) -> int:
        """How many pages, window pages or slots there are."""
        return {"page": self.pages, "window": self.window_pages, "slot": self.slots}[unit]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Part of a page, a window page or a slot in the canonical layout, which is the same for every backend.

    Keys and values are [heads, PAGE, dim] of float16 or float32, or ggml's blocks of Q8_0 or Q4_0 along dim, padded
    with zeros to whole blocks (Q4_0 after the Hadamard rotation of `ops.rotation`). Recurrent states are float32 of
    the state's shape. A page is its tensors in the order of the plan's states, keys before values.
    """

    state: State
    unit: Unit
    shape: tuple[int, ...]
    kind: KvType  # of the elements

    @property
    def nbytes(self) -> int:
        if self.kind in ("f32", "f16"):
            return prod(self.shape) * (4 if self.kind == "f32" else 2)
        return prod(self.shape[:-1]) * -(-self.shape[-1] // 32) * (34 if self.kind == "q8_0" else 18)


def tensors(states: Sequence[State], capacity: Capacity) -> list[Tensor]:
    """The canonical layout of a plan's states."""
    found = []
    for state in states:
        unit = capacity.unit(state)
        if state.kind == "recurrent":
            found.append(Tensor(state, unit, state.shape, "f32"))
            continue
        heads, key, value = state.shape
        for dim in [key] if state.kind == "latent" else [key, value]:
            found.append(Tensor(state, unit, (heads, PAGE, dim), capacity.kv_type))
    return found


def state_bytes(plan: Plan, kv_type: KvType) -> dict[Unit, int]:
    """Bytes of a page, of a window page and of a slot in the canonical layout; a backend may pad them."""
    found: dict[Unit, int] = dict.fromkeys(UNITS, 0)
    for tensor in tensors(plan.states, Capacity(1, 1, kv_type, window_pages=1)):
        found[tensor.unit] += tensor.nbytes
    return found


class States(Protocol):
    """What sequences keep between steps: pages of the KV cache, window pages, and slots of recurrent states."""

    def size(self, unit: Unit) -> int:
        """Bytes of memory that one takes."""
        ...

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy each pair's first to its second, in this order."""
        ...

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        """Some of them as this backend has them, [len(indexes), size]: what `write` brings back."""
        ...

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None: ...

    def exported_size(self, unit: Unit) -> int:
        """Bytes of one in the canonical layout."""
        ...

    def export(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        """Some of them in the canonical layout, [len(indexes), exported_size]: any backend can `restore` them."""
        ...

    def restore(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None: ...


class Pending(Protocol):
    """A step that was launched."""

    def result(self) -> npt.NDArray[np.float32]:
        """Wait for the step; logits [outputs, vocab], which are overwritten by the program's next launch."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that was done when it was launched."""

    logits: npt.NDArray[np.float32]

    def result(self) -> npt.NDArray[np.float32]:
        return self.logits


class Program(Protocol):
    """A plan made runnable, with the memory of its states."""

    @property
    def states(self) -> States: ...

    @property
    def workspace(self) -> int:
        """Bytes reserved for what is computed within a step."""
        ...

    def launch(self, batch: Batch) -> Pending:
        """Begin a step. The batch may be filled again once the step is done; one step at a time."""
        ...

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        """Put an adapter into a slot, its pairs by the names of matrices; no pairs empty the slot."""
        ...

    def close(self) -> None:
        """End its threads; launching afterwards is an error."""
        ...


class Backend(Protocol):
    """One kind of device, with the options that it was made with."""

    @property
    def name(self) -> str: ...

    @property
    def formats(self) -> frozenset[str]:
        """The formats of matrices that it multiplies."""
        ...

    def free_bytes(self) -> int:
        """Bytes of memory that weights and states may still use."""
        ...

    def weight_bytes(self, nbytes: int) -> int:
        """How much of that memory weights of `nbytes` take; less than all of it if they are offloaded."""
        ...

    def check(self, plan: Plan) -> None:
        """Raises KernelError naming the operation, or the weight and its format, that has no kernel."""
        ...

    def describe(self) -> dict[str, str]:
        """What computes, and with which options, in words."""
        ...

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> Program:
        """A program of this plan for these buffers; with `before`, a program of this backend, it shares the states.

        `progress(kernel, done, total)` is called before each kernel that is compiled. Raises KernelError as `check`
        does, and CapacityError if there is not enough memory.
        """
        ...
