"""The reference backend: a plan replayed step by step in NumPy, for truth rather than speed."""

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, state_shapes
from llamina.backends.states import HostStates
from llamina.ops.batch import PAGE, Batch
from llamina.ops.reference import Array, Reference
from llamina.plan import Plan


class ReferenceProgram:
    """Every value an array; states are float32 unless the capacity asks for halves."""

    def __init__(self, plan: Plan, capacity: Capacity) -> None:
        self._plan = plan
        kv = np.float16 if capacity.kv_type == "f16" else np.float32
        self.reference = Reference(
            {
                state: [
                    np.zeros(shape, np.float32 if state.kind == "recurrent" else kv)
                    for shape in state_shapes(state, capacity, PAGE)
                ]
                for state in plan.states
            }
        )
        self.states = HostStates()
        for state, arrays in self.reference.states.items():
            for array in arrays:
                self.states.add("slot" if state.kind == "recurrent" else "page", array)

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

    def close(self) -> None:
        """Nothing to end."""
