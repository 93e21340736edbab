"""The reference backend: a plan replayed step by step in NumPy, for truth rather than speed."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, Program, state_shapes
from llamina.backends.states import HostStates
from llamina.ops import LowRank
from llamina.ops.batch import PAGE, Batch
from llamina.ops.reference import Array, Reference
from llamina.ops.rotation import hadamard, turned
from llamina.ops.value import State
from llamina.plan import Plan
from llamina.quant import decode, encode


class ReferenceProgram:
    """Every value an array; states are float32, rounded as the capacity's type of cache would round them."""

    workspace = 0  # arrays come and go
    reference: Reference
    states: HostStates

    def __init__(self, plan: Plan, capacity: Capacity, before: Program | None = None) -> None:
        self._plan = plan
        if isinstance(before, ReferenceProgram):
            self.reference = Reference(before.reference.states, before.reference.keep, before.reference.near)
            self.states = before.states
            return
        states = {
            state: [np.zeros(shape, np.float32) for shape in state_shapes(state, capacity, PAGE)]
            for state in plan.states
        }
        near = frozenset(state for state in plan.states if capacity.unit(state) == "near")
        self.reference = Reference(states, lambda state, x: _rounded(x, capacity.kv_type, state), near)
        self.states = HostStates()
        for state, arrays in self.reference.states.items():
            for array in arrays:
                self.states.add(capacity.unit(state), array)

    def run(self, batch: Batch) -> npt.NDArray[np.float32]:
        n = batch.n_tokens
        values: dict[int, Array] = {
            self._plan.tokens.id: batch.tokens[:n],
            self._plan.positions.id: batch.positions[:n],
        }
        last = self._plan.last_uses()
        for index, step in enumerate(self._plan.steps):
            outputs = self.reference.apply(step, [values[v.id] for v in step.inputs], batch)
            values.update(zip((v.id for v in step.outputs), outputs, strict=True))
            for spent in [v for v in values if last.get(v, 0) <= index]:
                del values[spent]
        logits: npt.NDArray[np.float32] = values[self._plan.logits.id]
        return logits

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        self.reference.adapters[slot] = pairs

    def close(self) -> None:
        """Nothing to end."""


def _rounded(x: Array, kv_type: str, state: State) -> Array:
    """Keys or values as they come back from the cache: [tokens, heads, dim]."""
    if kv_type in ("f32", "f16"):
        return x.astype(np.float16 if kv_type == "f16" else np.float32)
    size = turned(*state.shape[1:]) if kv_type == "q4_0" else 1
    turn, dim = hadamard(size), x.shape[-1]
    blocks = (x.reshape(*x.shape[:-1], -1, size) @ turn).reshape(x.shape)
    blocks = np.pad(blocks, [(0, 0), (0, 0), (0, -dim % 32)])
    back = decode(encode(blocks, kv_type.upper()), kv_type.upper())[..., :dim]
    return (back.reshape(*x.shape[:-1], -1, size) @ turn).reshape(x.shape)
