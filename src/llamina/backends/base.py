"""The seam to a device: what the engine asks of a backend, and what it gets back.

`Backend.compile` makes a `Program` of a plan; `Program.launch` begins a step on a filled `Batch` and returns a
`Pending`, whose `result` waits for the logits. So a device may compute while the host prepares what comes after.
A program that samples (`Program.stages`) chooses tokens where the logits are: `Pending.sample`. The next step may be
launched with tokens that nobody has read yet.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from llamina.backends.kv_types import KvType, row_bytes
from llamina.errors import KernelError, RequestError
from llamina.ops import LowRank, State, Unit
from llamina.ops.batch import PAGE, Batch
from llamina.plan import Plan
from llamina.plan.fusion import MATRICES

STEP_TOKENS = 512  # of a step in which somebody generates, unless told otherwise
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

    Keys and values are [heads, PAGE, dim] of float16, float32 or bfloat16, or ggml's blocks of Q8_0 or Q4_0 along dim,
    padded with zeros to whole blocks (Q4_0 after the Hadamard rotation of `ops.rotation`). A row of fp8 is a float16
    scale and dim 8-bit floats (`quant.e4m3`); the scale is the least power of two, from 2⁻²⁴ on, by which no element is
    above 448. Recurrent states are float32 of the state's shape. A page is its tensors in the order of the plan's
    states, keys before values.
    """

    state: State
    unit: Unit
    shape: tuple[int, ...]
    kind: KvType  # of the elements

    @property
    def nbytes(self) -> int:
        return prod(self.shape[:-1]) * row_bytes(self.kind, self.shape[-1])


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


TOP_K = 128  # the most candidates that a token is drawn from where a backend samples
CHANGES = 1024  # the most changes of a row's logits there
NONE_LEFT, NOT_FINITE = -1, -2  # in the place of a token: all logits are -inf; the largest is not a number


class Change(NamedTuple):
    """What is done to the logit of a token: a bias is added, then it is divided by `repeat`, then lowered.

    A logit that is not above 0 is multiplied by `repeat` instead.
    """

    token: int
    bias: float = 0.0
    repeat: float = 1.0
    penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """How a token is chosen from a row of logits, after the changes and the mask: the stages, in their order.

    Without a number it is the likeliest token, the first of equal ones. With one it is drawn from the `top_k` likeliest
    (at least 1, at most TOP_K), of which those within the mass `top_p` stay, and those at least `min_p` times as likely
    as the likeliest: the token at which the sum of their probabilities at the temperature, likeliest first, exceeds the
    number.
    """

    number: float | None = None  # in [0, 1)
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    temperature: float = 1.0
    changes: Sequence[Change] = ()  # at most CHANGES, each of another token
    mask: npt.NDArray[np.uint32] | None = None  # a bit for each token, the lowest first: whether it may be chosen


class Sampled(Protocol):
    """Tokens that are being chosen. The next step's batch may name them before they are known (`ops.batch.Span`)."""

    def tokens(self) -> list[int]:
        """Wait; the token of each row, NONE_LEFT or NOT_FINITE where there is none to choose, any of a row without a
        choice."""
        ...


class Pending(Protocol):
    """A step that was launched."""

    def result(self) -> npt.NDArray[np.float32]:
        """Wait for the step; logits [outputs, vocab], which are overwritten by the program's next launch."""
        ...

    def on_device(self) -> Any:
        """The logits where they are, for who takes the CUDA array interface; None if that is the host's memory.

        They are there once what is on the array's stream is done, and until the program's next launch.
        """
        ...

    def sample(self, choices: Sequence[Choice | None]) -> Sampled:
        """Begin to choose a token from each row that has a choice, whose logits may be changed by that.

        Only of programs that have `stages`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that was done when it was launched."""

    logits: npt.NDArray[np.float32]

    def result(self) -> npt.NDArray[np.float32]:
        return self.logits

    def on_device(self) -> None:
        return None

    def sample(self, choices: Sequence[Choice | None]) -> Sampled:
        raise NotImplementedError("the program has no stages of sampling")


class Program(Protocol):
    """A plan made runnable, with the memory of its states."""

    @property
    def states(self) -> States: ...

    @property
    def workspace(self) -> int:
        """Bytes reserved for what is computed within a step."""
        ...

    @property
    def stages(self) -> frozenset[str]:
        """The stages of sampling that it does by itself: names of `sampling.params.ORDER`, "bias" and "mask".

        With none, it gives logits alone. With some, the batch may be filled again as soon as `launch` returns.
        """
        ...

    @property
    def ahead(self) -> bool:
        """Whether steps may be launched while others are under way, with tokens that nobody has read (`Span`).

        They are computed in order.
        """
        ...

    def launch(self, batch: Batch) -> Pending:
        """Begin a step. Without `stages`, the batch may be filled again once the step is done; one step at a time."""
        ...

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        """Put an adapter into a slot, its pairs by the names of matrices; no pairs empty the slot."""
        ...

    def close(self) -> None:
        """End its threads; launching afterwards is an error."""
        ...


def check_kernels(plan: Plan, backend: str, ops: Container[str], formats: Container[str]) -> None:
    """Raise KernelError naming the operation, or the weight and its format, that a backend has no kernel for."""
    for step in plan.steps:
        if step.op not in ops:
            other = "reference" if backend == "cpu" else "cpu"
            raise KernelError(f"backend='{backend}' has no kernel for {step.op}: use backend='{other}'")
        for weight in step.weights if step.op in MATRICES else ():
            if weight.format.name not in formats:
                message = f"{weight.name} is {weight.format.name}, which has no kernel: requantize the model"
                raise KernelError(message)


def check_kv_type(backend: "Backend", kv_type: str) -> None:
    """Raise RequestError naming the types of a KV cache that a backend has, unless this is one of them."""
    if kv_type not in backend.kv_types:
        known = " or ".join(backend.kv_types)
        raise RequestError(f"kv_type is {kv_type!r}: with backend={backend.name!r} it must be {known}", "kv_type")


class Backend(Protocol):
    """One kind of device, with the options that it was made with."""

    @property
    def name(self) -> str: ...

    @property
    def kv_types(self) -> tuple[KvType, ...]:
        """The types of keys and values that it can keep."""
        ...

    @property
    def formats(self) -> frozenset[str]:
        """The formats of matrices that it multiplies."""
        ...

    @property
    def step_tokens(self) -> int:
        """Tokens of prompts that a step takes where nobody waits for it to generate."""
        ...

    def free_bytes(self) -> int:
        """Bytes of memory that weights and states may still use."""
        ...

    def weight_bytes(self, nbytes: int) -> int:
        """How much of that memory weights of `nbytes` take; less than all of it if they are offloaded."""
        ...

    def parts(self, plan: Plan) -> "Sequence[tuple[Backend, Plan]]":
        """Which backend computes what of a plan: this one all of it, unless it is made of several."""
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

        `progress(what, done, total)` is called before each matrix that is loaded and each kernel that is
        compiled. Raises KernelError as `check` does, and CapacityError if there is not enough memory.
        """
        ...
