"""The reference backend: a plan replayed step by step in NumPy, for truth rather than speed."""

from collections.abc import Mapping

import numpy as np

from llamina.backends import host
from llamina.backends.base import STEP_TOKENS, Backend, Capacity, Finished, Program, Progress, Tensor, tensors
from llamina.backends.kv_types import FLOATS, KV_TYPES, KvType
from llamina.backends.states import HostStates, Stored
from llamina.errors import KernelError, RequestError
from llamina.ops import LowRank
from llamina.ops.batch import Batch
from llamina.ops.reference import OPS, Array, Reference
from llamina.ops.rotation import hadamard, hadamard_size
from llamina.ops.value import State
from llamina.plan import Plan
from llamina.quant import FORMATS, decode, encode
from llamina.quant.e4m3 import LARGEST, decode_e4m3, encode_e4m3


class ReferenceBackend:
    """NumPy on the host. `threads` is NumPy's own business; all weights are decoded, so none can be offloaded."""

    name = "reference"
    formats = frozenset(form.name for form in FORMATS.values())
    kv_types = KV_TYPES
    step_tokens = STEP_TOKENS

    def __init__(self, threads: int | None = None, offload: str = "none", memory_budget: int | None = None) -> None:
        if offload != "none" or memory_budget is not None:
            raise RequestError("the reference backend decodes all weights: offload needs backend='cpu'", "offload")

    def free_bytes(self) -> int:
        return host.available_bytes()

    def weight_bytes(self, nbytes: int) -> int:
        return nbytes

    def parts(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        return [(self, plan)]

    def check(self, plan: Plan) -> None:
        for step in plan.steps:
            if step.op not in OPS:
                raise KernelError(f"the reference backend does not know the operation {step.op}")

    def describe(self) -> dict[str, str]:
        return {"backend": self.name, "numpy": np.__version__}

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> "ReferenceProgram":
        self.check(plan)
        return ReferenceProgram(plan, capacity, before)


class ReferenceProgram:
    """Every value an array; states are float32, rounded as the capacity's type of cache would round them."""

    workspace = 0  # arrays come and go
    stages = frozenset[str]()  # the host samples
    ahead = False
    reference: Reference
    states: HostStates

    def __init__(self, plan: Plan, capacity: Capacity, before: Program | None = None) -> None:
        self._plan = plan
        if isinstance(before, ReferenceProgram):
            self.reference = Reference(before.reference.states, before.reference.round, before.reference.windowed)
            self.states = before.states
            return
        stored = [_stored(tensor, capacity) for tensor in tensors(plan.states, capacity)]
        states = {state: [s.rows for s in stored if s.tensor.state == state] for state in plan.states}
        windowed = frozenset(state for state in plan.states if capacity.unit(state) == "window")
        self.reference = Reference(states, lambda state, x: _rounded(x, capacity.kv_type, state), windowed)
        self.states = HostStates(stored)

    def launch(self, batch: Batch) -> Finished:
        n = batch.n_tokens
        values: dict[int, Array] = {
            self._plan.tokens.id: batch.tokens[:n],
            self._plan.positions.id: batch.positions[:n],
        }
        if self._plan.rows is not None:
            values[self._plan.rows.id] = batch.rows[:n]
        last = self._plan.last_uses()
        for index, step in enumerate(self._plan.steps):
            outputs = self.reference.apply(step, [values[v.id] for v in step.inputs], batch)
            values.update(zip((v.id for v in step.outputs), outputs, strict=True))
            for spent in [v for v in values if last.get(v, 0) <= index]:
                del values[spent]
        return Finished(values[self._plan.logits.id])

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        self.reference.adapters[slot] = pairs

    def close(self) -> None:
        """Nothing to end."""


def _stored(tensor: Tensor, capacity: Capacity) -> Stored:
    """Memory for a tensor: float32, whatever it is in the canonical layout."""
    rows = np.zeros((capacity.count(tensor.unit), *tensor.shape), np.float32)
    heads = tensor.shape[:-1]

    def restore(data: Array) -> Array:
        return _decode(data.reshape(*heads, -1), tensor.kind, tensor.state, tensor.shape[-1])

    return Stored(tensor, rows, lambda x: _encode(x, tensor.kind, tensor.state), restore)


def _encode(x: Array, kind: KvType, state: State) -> Array:
    """Bytes of keys, values or a recurrent state [..., dim] in the canonical layout, [..., nbytes]."""
    if kind in FLOATS:
        return encode(x, kind.upper())
    if kind == "fp8":
        return _encode_fp8(x)
    padding = [*[(0, 0)] * (x.ndim - 1), (0, -x.shape[-1] % 32)]
    return encode(np.pad(_rotated(x, kind, state), padding), kind.upper())


def _decode(data: Array, kind: KvType, state: State, dim: int) -> Array:
    """Bytes of the canonical layout [..., nbytes] as float32 [..., dim]."""
    if kind in FLOATS:
        return decode(data, kind.upper())
    if kind == "fp8":
        return decode_e4m3(data[..., 2:]) * np.ascontiguousarray(data[..., :2]).view(np.float16)
    return _rotated(decode(data, kind.upper())[..., :dim], kind, state)


def _rotated(x: Array, kind: KvType, state: State) -> Array:
    """Multiplied by the Hadamard matrix of a cache of four bits, which is its own inverse."""
    if kind != "q4_0":
        return x
    size = hadamard_size(*state.shape[1:])
    return (x.reshape(*x.shape[:-1], -1, size) @ hadamard(size)).reshape(x.shape)


def _rounded(x: Array, kind: KvType, state: State) -> Array:
    """Keys or values [tokens, heads, dim] as they come back from the KV cache."""
    return _decode(_encode(x, kind, state), kind, state, x.shape[-1])


def _encode_fp8(x: Array) -> Array:
    """Rows of a scale, a power of two, and 8-bit floats; NaN is the scale of a row that is not all finite."""
    largest = np.abs(x).max(-1, keepdims=True).astype(np.float32)
    fraction, exponent = np.frexp(largest)
    exponent = np.where(largest > 0, np.maximum(exponent + (fraction > LARGEST / 512) - 9, -24), -24)
    scale = np.where(np.isfinite(largest), np.ldexp(np.float32(1), exponent), np.nan).astype(np.float16)
    return np.concatenate([scale.view(np.uint8), encode_e4m3(x / scale)], axis=-1)
