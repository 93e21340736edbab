"""Tensor parallelism in one process: a thread and a backend for each rank, and one program to the engine."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BrokenBarrierError
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Backend, Bytes, Capacity, Finished, Program, Progress, States
from llamina.backends.kv_types import KvType
from llamina.backends.links import Meeting
from llamina.errors import SnapshotError
from llamina.ops import LowRank, Unit
from llamina.ops.batch import Batch
from llamina.plan import Plan
from llamina.plan.shard import shard
from llamina.plan.sharding import Taken

Made = TypeVar("Made")
Rows = npt.NDArray[np.float32]


class ParallelBackend:
    """`backends` has one for each rank; `together` says whether they share a memory."""

    def __init__(self, backends: Sequence[Backend], together: bool) -> None:
        self.backends, self._together = list(backends), together
        self.meeting = Meeting(len(self.backends))
        self._threads = [ThreadPoolExecutor(1, f"llamina-rank-{rank}") for rank in range(len(self.backends))]
        self._last: tuple[Plan, list[Plan]] | None = None
        self._taken: Taken = {}

    @property
    def name(self) -> str:
        return f"{self.backends[0].name}×{len(self.backends)}"

    @property
    def formats(self) -> frozenset[str]:
        return self.backends[0].formats

    @property
    def kv_types(self) -> tuple[KvType, ...]:
        return self.backends[0].kv_types

    @property
    def step_tokens(self) -> int:
        return self.backends[0].step_tokens

    def free_bytes(self) -> int:
        return min(backend.free_bytes() for backend in self.backends)

    def weight_bytes(self, nbytes: int) -> int:
        return self.backends[0].weight_bytes(nbytes)

    def plans(self, plan: Plan) -> list[Plan]:
        """Each rank's plan. Raises UnsupportedModel if it cannot be divided."""
        if self._last is None or self._last[0] is not plan:
            self._last = plan, [shard(plan, link, self._taken) for link in self.meeting.links]
        return self._last[1]

    def parts(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        plans = self.plans(plan)
        return [(self.backends[0], plan)] if self._together else list(zip(self.backends, plans, strict=True))

    def check(self, plan: Plan) -> None:
        for backend, part in zip(self.backends, self.plans(plan), strict=True):
            backend.check(part)

    def describe(self) -> dict[str, str]:
        return {**self.backends[0].describe(), "backend": self.name, "tensor_parallel": str(len(self.backends))}

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> "ParallelProgram":
        programs: list[Program] = []
        for rank, part in enumerate(self.plans(plan)):  # one after the other: kernels are compiled for all at once
            own = before.programs[rank] if isinstance(before, ParallelProgram) else None
            made = self._threads[rank].submit(self.backends[rank].compile, part, batch, capacity, progress, own)
            try:
                programs.append(made.result())
            except BaseException:
                for thread, program in zip(self._threads, programs, strict=False):
                    thread.submit(program.close).result()
                raise
        return ParallelProgram(self, programs)

    def each(self, work: Callable[[int], Made]) -> list[Made]:
        """What each rank's thread returns. If one fails, whoever waits for it is let go, and its error is raised."""

        def run(rank: int) -> Made:
            try:
                return work(rank)
            except BaseException:
                self.meeting.abort()
                raise

        futures: list[Future[Made]] = [thread.submit(run, rank) for rank, thread in enumerate(self._threads)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            self.meeting.reset()
            raise next((error for error in errors if not isinstance(error, BrokenBarrierError)), errors[0])
        return [future.result() for future in futures]


class ParallelProgram:
    """Every rank computes the same batch; all of them have the logits, and those of the first are looked at."""

    stages = frozenset[str]()  # the host samples
    ahead = False

    def __init__(self, backend: ParallelBackend, programs: Sequence[Program]) -> None:
        self._backend, self.programs = backend, list(programs)
        self.states = ParallelStates(backend, [program.states for program in programs])

    @property
    def workspace(self) -> int:
        return sum(program.workspace for program in self.programs)

    def launch(self, batch: Batch) -> Finished:
        return Finished(self._backend.each(lambda rank: self.programs[rank].launch(batch).result())[0])

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        """Nothing to do: a plan with places for adapters cannot be divided."""

    def close(self) -> None:
        self._backend.each(lambda rank: self.programs[rank].close())


class ParallelStates:
    """Each page, window page or slot is on every rank, with its own key heads."""

    def __init__(self, backend: ParallelBackend, ranks: Sequence[States]) -> None:
        self._backend, self._ranks = backend, list(ranks)

    def size(self, unit: Unit) -> int:
        return sum(states.size(unit) for states in self._ranks)

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        self._backend.each(lambda rank: self._ranks[rank].copy(unit, pairs))

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        return np.concatenate(self._backend.each(lambda rank: self._ranks[rank].read(unit, indexes)), axis=1)

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        ends = np.cumsum([states.size(unit) for states in self._ranks])
        parts = np.split(data, ends[:-1], axis=1)
        self._backend.each(lambda rank: self._ranks[rank].write(unit, indexes, parts[rank]))

    def exported_size(self, unit: Unit) -> int:
        _no_snapshots()

    def export(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        _no_snapshots()

    def restore(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        _no_snapshots()


def _no_snapshots() -> NoReturn:
    raise SnapshotError(
        "the model is divided among ranks, of which there are no snapshots: load it without tensor_parallel"
    )
