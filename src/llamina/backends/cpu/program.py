"""A plan compiled for the CPU: a table of kernel calls over one arena, which a team of threads walks."""

import ctypes
from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Capacity, Finished, Program
from llamina.backends.cpu.jit import Progress, library
from llamina.backends.cpu.lowering import lower
from llamina.backends.cpu.runtime.arena import Place, Ref, pack
from llamina.backends.cpu.runtime.call import LinkedCall
from llamina.backends.cpu.runtime.dependencies import chain, group, mark_lifetimes, rows_of
from llamina.backends.cpu.runtime.exponents import fill
from llamina.backends.cpu.runtime.offload import Offload, Pager, pinned_spans, segments_of
from llamina.backends.cpu.runtime.states import allocate, zeros
from llamina.backends.cpu.runtime.team import Team
from llamina.backends.states import HostStates
from llamina.errors import KernelError
from llamina.ops import LowRank, State, Value
from llamina.ops.batch import Batch
from llamina.plan import Plan


class CpuProgram:
    """Compiled once; every run walks the same table."""

    stages = frozenset[str]()  # the host samples
    ahead = False
    states: HostStates
    _stores: dict[State, list[Ref]]

    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        threads: int,
        offload: Offload | None,
        progress: Progress | None,
        before: Program | None,
    ) -> None:
        self._memory: list[Any] = []
        if isinstance(before, CpuProgram):
            self.states, self._stores = before.states, before._stores
        else:
            self.states, self._stores = allocate(plan, capacity)
        lowered, self._outputs = lower(plan, batch, capacity, threads, self._stores)
        self._constants, self._adapters = lowered.constants, lowered.adapters
        self._steps = [call.step for call in lowered.calls]
        self._vocab, self._of_tokens = plan.vocab, plan.logits.rows == "tokens"
        kernels = library()
        self._tables = lowered.exponent_tables
        kernels.prepare([*(call.kernel for call in lowered.calls), *(t.kernel for t in self._tables)], progress)
        fill(self._tables, kernels, threads, progress)
        calls = [LinkedCall(call, kernels[call.kernel]) for call in lowered.calls]
        ends = [*(stop.calls for stop in lowered.stops), len(calls)]
        parts = [chain(calls[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        chains = [calls for part in parts for calls in part]
        mark_lifetimes(chains)
        size, scratch = pack(lowered.buffers), lowered.scratch_size * threads
        self.workspace = size + scratch + lowered.partials.nbytes + lowered.logits.nbytes
        self.workspace += sum(table.array.nbytes for table in self._tables)
        arena = self._zeros(size)
        for buffer in lowered.buffers:
            buffer.address += arena
        lowered.scratch.address = self._zeros(scratch)
        lowered.partials.address = self._zeros(lowered.partials.nbytes)
        lowered.logits.address = self._zeros(lowered.logits.nbytes)
        self._logits: npt.NDArray[np.float32] = self._memory[-1].view(np.float32)
        self._calls = _table(calls, self._memory)
        self._chains = rows_of(self._calls, [len(c) for c in chains])
        by_part = [group(part) for part in parts]
        self._walks = list(zip(accumulate(map(len, by_part)), [*lowered.stops, None], strict=True))
        sizes = [size for part in by_part for size in part]
        self._groups = rows_of(self._chains, sizes)
        if offload and lowered.stops:
            raise KernelError("offload needs all of a model on one rank: leave it out, or tensor_parallel")
        self.pager: Pager | None = None
        if offload:
            self.pager = Pager(segments_of(_grouped(chains, sizes)), offload, pinned_spans(plan, offload.pin))
        self._team = Team(kernels, threads, len(self._calls))

    def _zeros(self, nbytes: int) -> int:
        """The address of zeroed memory that lives as long as the program."""
        self._memory.append(zeros(nbytes))
        return int(self._memory[-1].ctypes.data)

    def launch(self, batch: Batch) -> Finished:
        if self.pager is None:
            self._run(batch)
        else:
            self._run_by_segments(self.pager)
        n = batch.n_tokens if self._of_tokens else batch.n_outputs
        return Finished(self._logits[: n * self._vocab].reshape(n, self._vocab))

    def _run(self, batch: Batch) -> None:
        """All groups; ranks of a divided model meet in between."""
        start = 0
        for end, stop in self._walks:
            self._team.run(self._groups[start:end])
            start = end
            if stop is not None:
                stop.link.all_reduce(_view(stop.value, stop.place, batch))

    def _run_by_segments(self, pager: Pager) -> None:
        for index, segment in enumerate(pager.segments):
            pager.before(index)
            self._team.run(self._groups[segment.start : segment.stop])
            pager.after(index)

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        for name, table in self._adapters.items():
            table.put(slot, pairs.get(name))

    def trace(
        self, batch: Batch, wanted: Container[int] | None = None
    ) -> Iterator[tuple[int, dict[int, npt.NDArray[Any]]]]:
        """Walk step by step: the index of each step of the plan, and copies of its outputs by their ids.

        With `wanted`, the copies of these values alone.
        """
        alone = [1] * len(self._calls)
        chains = rows_of(self._calls, alone)
        singly, row = rows_of(chains, alone), 0
        for index, outputs in enumerate(self._outputs):
            stop = bisect_right(self._steps, index)
            if stop > row:
                self._team.run(singly[row:stop])
            row = stop
            seen = [(value, place) for value, place in outputs if wanted is None or value.id in wanted]
            yield index, {value.id: _read(value, place, batch) for value, place in seen}

    def close(self) -> None:
        self._team.close()


def _grouped(chains: list[list[LinkedCall]], sizes: list[int]) -> list[list[LinkedCall]]:
    """The calls of each group."""
    rest = iter(chains)
    return [[call for _ in range(size) for call in next(rest)] for size in sizes]


def _read(value: Value, place: Place, batch: Batch) -> npt.NDArray[Any]:
    """A copy of a value, [rows, *shape]."""
    view = _view(value, place, batch)
    return view.reshape(len(view), *value.shape).copy()


def _view(value: Value, place: Place, batch: Batch) -> npt.NDArray[Any]:
    """A value where it is, [rows, outer, inner]."""
    rows = batch.n_tokens if value.rows == "tokens" else batch.n_outputs
    reach = rows * place.row + place.outer * place.head + 4 * place.inner
    memory: Any = (ctypes.c_char * reach).from_address(place.ref.address)
    dtype, shape = np.int32 if value.integer else np.float32, (rows, place.outer, place.inner)
    return np.ndarray(shape, dtype, memory, strides=(place.row, place.head, 4))


def _table(calls: list[LinkedCall], memory: list[Any]) -> npt.NDArray[np.int64]:
    """Rows of (function, arguments), which `memory` keeps alive."""
    table = np.zeros((len(calls), 2), np.int64)
    for i, call in enumerate(calls):
        memory.append(call.arguments())
        table[i] = call.kernel.address, memory[-1].ctypes.data
    return table
