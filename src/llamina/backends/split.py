"""Partial offload: the first layers on one backend, the others and the output on another, as one program."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from llamina.backends.base import Backend, Bytes, Capacity, Pending, Program, Progress, States
from llamina.backends.kv_types import KvType
from llamina.ops import LowRank, Unit
from llamina.ops.batch import Batch
from llamina.plan import Plan
from llamina.plan.split import Halves, count_layers, split


class SplitBackend:
    """`gpu_layers` are the last of a model's layers, of which the output is one more, as in llama.cpp."""

    def __init__(self, host: Backend, gpu: Backend, gpu_layers: int) -> None:
        self.host, self.gpu, self.gpu_layers = host, gpu, gpu_layers

    @property
    def name(self) -> str:
        return f"{self.host.name}+{self.gpu.name}"

    @property
    def formats(self) -> frozenset[str]:
        return self.host.formats & self.gpu.formats

    @property
    def kv_types(self) -> tuple[KvType, ...]:
        return tuple(kind for kind in self.host.kv_types if kind in self.gpu.kv_types)

    @property
    def step_tokens(self) -> int:
        return self.host.step_tokens

    def free_bytes(self) -> int:
        return self.host.free_bytes()

    def weight_bytes(self, nbytes: int) -> int:
        return self.host.weight_bytes(nbytes)

    def halves(self, plan: Plan) -> Halves:
        """What either computes. Raises UnsupportedModel if the model cannot be divided there."""
        return split(plan, count_layers(plan) + 1 - self.gpu_layers)

    def parts(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        first, second = self.halves(plan)
        return [(self.host, first), (self.gpu, second)]

    def check(self, plan: Plan) -> None:
        for backend, part in self.parts(plan):
            backend.check(part)

    def describe(self) -> dict[str, str]:
        return {**self.host.describe(), **self.gpu.describe(), "backend": self.name, "gpu_layers": str(self.gpu_layers)}

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> "SplitProgram":
        first, second = self.halves(plan)
        assert second.rows is not None
        handed = batch.with_rows(second.rows.size)
        earlier = (before.first, before.second) if isinstance(before, SplitProgram) else (None, None)
        below = self.host.compile(first, batch, capacity, progress, earlier[0])
        try:
            return SplitProgram(below, self.gpu.compile(second, handed, capacity, progress, earlier[1]), handed)
        except BaseException:
            below.close()
            raise


class SplitProgram:
    """Two programs that run one after the other; rows of `handed` are what the second begins with.

    The first one's tokens must be known, so that no step is launched ahead; the second samples if it can.
    """

    ahead = False

    def __init__(self, first: Program, second: Program, handed: Batch) -> None:
        self.first, self.second, self._handed = first, second, handed
        self.states = SplitStates(first.states, second.states)

    @property
    def workspace(self) -> int:
        return self.first.workspace + self.second.workspace

    @property
    def stages(self) -> frozenset[str]:
        return self.second.stages

    def launch(self, batch: Batch) -> Pending:
        self._handed.rows[: batch.n_tokens] = self.first.launch(batch).result()
        return self.second.launch(self._handed)

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        self.first.adapt(slot, pairs)
        self.second.adapt(slot, pairs)

    def close(self) -> None:
        self.first.close()
        self.second.close()


class SplitStates:
    """Each page, window page or slot is in both, by the same number. Layers come in their order, as in one program."""

    def __init__(self, first: States, second: States) -> None:
        self._both = (first, second)

    def size(self, unit: Unit) -> int:
        return sum(states.size(unit) for states in self._both)

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        for states in self._both:
            states.copy(unit, pairs)

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        return cast(Bytes, np.concatenate([states.read(unit, indexes) for states in self._both], axis=1))

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        first, second = self._both
        size = first.size(unit)
        first.write(unit, indexes, data[:, :size])
        second.write(unit, indexes, data[:, size:])

    def exported_size(self, unit: Unit) -> int:
        return sum(states.exported_size(unit) for states in self._both)

    def export(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        return cast(Bytes, np.concatenate([states.export(unit, indexes) for states in self._both], axis=1))

    def restore(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        first, second = self._both
        size = first.exported_size(unit)
        first.restore(unit, indexes, data[:, :size])
        second.restore(unit, indexes, data[:, size:])
