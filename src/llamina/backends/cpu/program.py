"""A plan as a table of native calls over one arena."""

import ctypes
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Capacity, Finished, Program
from llamina.backends.cpu.adapters import Table
from llamina.backends.cpu.backend import Offload
from llamina.backends.cpu.jit import Kernel, Library, Progress, library
from llamina.backends.cpu.kv_memory import allocate, zeros
from llamina.backends.cpu.lower import Lowering
from llamina.backends.cpu.memory import Place, Ref, pack
from llamina.backends.cpu.native import Native
from llamina.backends.cpu.offload import Pager, segments_of
from llamina.backends.cpu.order import chain, group, mark_lifetimes, rows_of
from llamina.backends.cpu.team import Team
from llamina.backends.states import HostStates
from llamina.ops import LowRank, State, Value
from llamina.ops.batch import Batch
from llamina.plan import Plan


class CpuProgram:
    """Compiled once; every run walks the same table."""

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
        lowering = Lowering(plan, batch, capacity, threads, self._stores)
        self._keep = lowering.keep
        self._tables: dict[str, Table] = lowering.tables
        self._steps, self._outputs = [native.step for native in lowering.native], lowering.outputs
        self._vocab, self._batch = plan.vocab, batch
        chains = chain(lowering.native)
        mark_lifetimes(chains)
        size, scratch = pack(lowering.buffers), lowering.scratch_size * threads
        self.workspace = size + scratch + lowering.partials.nbytes + lowering.logits.nbytes
        arena = self._zeros(size)
        for buffer in lowering.buffers:
            buffer.address += arena
        lowering.scratch.address = self._zeros(scratch)
        lowering.partials.address = self._zeros(lowering.partials.nbytes)
        lowering.logits.address = self._zeros(lowering.logits.nbytes)
        self._logits: npt.NDArray[np.float32] = self._memory[-1].view(np.float32)
        kernels = library()
        kernels.prepare([n.kernel for n in lowering.native], progress)
        self._calls = _calls(lowering.native, kernels, self._memory)
        self._chains = rows_of(self._calls, [len(c) for c in chains])
        sizes = group(chains)
        self._groups = rows_of(self._chains, sizes)
        self.pager = Pager(segments_of(_grouped(chains, sizes)), offload) if offload else None
        self._team = Team(kernels, threads, len(self._calls))

    def _zeros(self, nbytes: int) -> int:
        """The address of zeroed memory that lives as long as the program."""
        self._memory.append(zeros(nbytes))
        return int(self._memory[-1].ctypes.data)

    def launch(self, batch: Batch) -> Finished:
        if self.pager is None:
            self._team.run(self._groups)
        else:
            self._run_by_segments(self.pager)
        n = batch.n_outputs
        return Finished(self._logits[: n * self._vocab].reshape(n, self._vocab))

    def _run_by_segments(self, pager: Pager) -> None:
        for index, segment in enumerate(pager.segments):
            pager.before(index)
            self._team.run(self._groups[segment.start : segment.stop])
            pager.after(index)

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        for name, table in self._tables.items():
            table.put(slot, pairs.get(name))

    def trace(self, batch: Batch) -> Iterator[tuple[int, dict[int, npt.NDArray[Any]]]]:
        """Walk step by step: the index of each step of the plan, and copies of its outputs by their ids."""
        alone = [1] * len(self._calls)
        chains = rows_of(self._calls, alone)
        singly, row = rows_of(chains, alone), 0
        for index, outputs in enumerate(self._outputs):
            stop = bisect_right(self._steps, index)
            if stop > row:
                self._team.run(singly[row:stop])
            row = stop
            yield index, {value.id: _read(value, place, batch) for value, place in outputs}

    def close(self) -> None:
        self._team.close()


def _grouped(chains: list[list[Native]], sizes: list[int]) -> list[list[Native]]:
    """The calls of each group."""
    rest = iter(chains)
    return [[call for _ in range(size) for call in next(rest)] for size in sizes]


def _read(value: Value, place: Place, batch: Batch) -> npt.NDArray[Any]:
    """A copy of a value, [rows, *shape]."""
    rows = batch.n_tokens if value.rows == "tokens" else batch.n_outputs
    reach = rows * place.row + place.outer * place.head + 4 * place.inner
    memory: Any = (ctypes.c_char * reach).from_address(place.ref.address)
    dtype, shape = np.int32 if value.integer else np.float32, (rows, place.outer, place.inner)
    view = np.ndarray(shape, dtype, memory, strides=(place.row, place.head, 4))
    return view.reshape(rows, *value.shape).copy()


def _calls(native: list[Native], library: Library, keep: list[Any]) -> npt.NDArray[np.int64]:
    """Rows of (function, arguments)."""
    table = np.zeros((len(native), 2), np.int64)
    for i, call in enumerate(native):
        kernel = library[call.kernel]
        arguments = _arguments(call, kernel)
        keep.append(arguments)
        table[i] = kernel.address, arguments.ctypes.data
    return table


def _arguments(call: Native, kernel: Kernel) -> npt.NDArray[np.int64]:
    """The call's arguments in the kernel's order, floats as the bits of doubles."""
    if set(kernel.params) != call.args.keys():
        odd = set(kernel.params) ^ call.args.keys()
        raise AssertionError(f"{call.kernel} is called with other arguments than it has: {sorted(odd)}")
    slots = np.zeros(len(kernel.params), np.int64)
    for i, name in enumerate(kernel.params):
        value = call.args[name]
        if isinstance(value, Ref):
            slots[i] = value.address
        elif name in kernel.floats:
            slots[i : i + 1].view(np.float64)[0] = value
        else:
            slots[i] = value
    return slots
