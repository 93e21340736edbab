"""The table of meanings, and the one who looks them up."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from llamina.ops.adapters import LowRank
from llamina.ops.batch import Batch
from llamina.ops.value import State, Step, Weight
from llamina.quant import decode

Array: TypeAlias = Any  # an ndarray; NumPy's stubs lose the type in arithmetic


class Reference:
    """Computes steps one by one. `states` holds what layers keep, as `keep` leaves it of a state's keys and values;
    `windowed` are those whose pages are in the pool of sliding-window layers."""

    def __init__(
        self,
        states: dict[State, list[Array]],
        keep: Callable[[State, Array], Array],
        windowed: frozenset[State] = frozenset(),
    ) -> None:
        self.states = states
        self.keep = keep
        self.windowed = windowed
        self.adapters: dict[int, Mapping[str, LowRank]] = {}  # by slot
        self._decoded: dict[str, Array] = {}

    def apply(self, step: Step, inputs: list[Array], batch: Batch) -> list[Array]:
        """The outputs of a step, each [rows, *shape]."""
        weights = [self.decode(w) for w in step.weights]
        result = OPS[step.op](self, step, inputs, weights, batch)
        arrays = result if isinstance(result, list) else [result]
        rows = batch.n_tokens if step.outputs[0].rows == "tokens" else batch.n_outputs
        return [a.reshape(rows, *v.shape) for a, v in zip(arrays, step.outputs, strict=True)]

    def decode(self, w: Weight) -> Array:
        if w.name not in self._decoded:
            self._decoded[w.name] = decode(w.data, w.format, w.shape)
        return self._decoded[w.name]


Operation = Callable[[Reference, Step, list[Array], list[Array], Batch], Array | list[Array]]
OPS: dict[str, Operation] = {}


def meaning(name: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        OPS[name] = function
        return function

    return register
