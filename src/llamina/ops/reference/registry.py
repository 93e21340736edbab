"""The table of operations in NumPy, and what computes steps by it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from llamina.ops.adapters import LowRank
from llamina.ops.batch import Batch
from llamina.ops.value import State, Step, Weight
from llamina.quant import decode

Array: TypeAlias = Any  # an ndarray; NumPy's stubs lose the type in arithmetic


class Reference:
    """Computes steps one by one. `states` are the KV cache and recurrent states, [pages or slots, …]; `round` rounds
    keys and values as the cache's type does; `windowed` are the states whose pages are in the pool of windows."""

    def __init__(
        self,
        states: dict[State, list[Array]],
        round: Callable[[State, Array], Array],
        windowed: frozenset[State] = frozenset(),
    ) -> None:
        self.states = states
        self.round = round
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
        """A weight as float32; decoded once."""
        if w.name not in self._decoded:
            self._decoded[w.name] = decode(w.data, w.format, w.shape)
        return self._decoded[w.name]


Operation = Callable[[Reference, Step, list[Array], list[Array], Batch], Array | list[Array]]
OPS: dict[str, Operation] = {}


def operation(name: str) -> Callable[[Operation], Operation]:
    """Register what an operation means."""

    def register(function: Operation) -> Operation:
        OPS[name] = function
        return function

    return register
