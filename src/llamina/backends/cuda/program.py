"""A plan as launches over one arena, recorded into a graph for each size of step and replayed once a step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Capacity, Choice, Program, Progress
from llamina.backends.cuda.adapters import Table
from llamina.backends.cuda.bucket import Bucket
from llamina.backends.cuda.device import Device, Graph, Launch
from llamina.backends.cuda.inputs import Inputs
from llamina.backends.cuda.interop import DeviceArray
from llamina.backends.cuda.lowering import Calls, Stop, lower
from llamina.backends.cuda.memory import Buffer, Place, Ref, pack
from llamina.backends.cuda.sampling import STAGES, Sampling, Tokens
from llamina.backends.cuda.shared import Shared
from llamina.backends.cuda.states import DeviceStates
from llamina.ops import LowRank, Value, Weight
from llamina.ops.batch import PAGE, Batch
from llamina.plan import Plan
from llamina.plan.fusion import Readers


@dataclass(frozen=True, slots=True)
class Logits:
    """The outputs of a step that may still be running."""

    _program: "CudaProgram"
    _count: int
    _chosen: bool  # the likeliest tokens were chosen with them
    _step: int

    def result(self) -> npt.NDArray[np.float32]:
        """Logits [outputs, vocab], copied and waited for; the array is overwritten by the next step's."""
        return self._program.logits(self._count)

    def on_device(self) -> DeviceArray | None:
        found = self._program.outputs(self._count)
        return found if found.stream is not None else None

    def sample(self, choices: Sequence[Choice | None]) -> Tokens:
        return self._program.sampling.sample(choices, self._chosen, self._step)


GROUP = 8  # rows of a matrix that lie together on the device


class CudaProgram:
    """Launches are written when a step of a new size comes, and kept as a graph."""

    stages = STAGES
    ahead = True

    def __init__(
        self,
        device: Device,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
        exact: bool = False,
    ) -> None:
        self._device, self._plan, self._batch, self._capacity = device, plan, batch, capacity
        shared = before._shared if isinstance(before, CudaProgram) else Shared(device, plan.states, capacity, exact)
        self._shared: Shared = shared
        self._shared.users += 1
        adapters = any(step.op == "adapt" for step in plan.steps)
        windows, rows = capacity.window_pages > 0, plan.rows is not None
        self._inputs = Inputs(device, batch, adapters=adapters, windows=windows, rows=rows)
        self._tables: dict[str, Table] = {}
        self._graphs: dict[Bucket, list[tuple[Graph, Stop | None]]] = {}
        reduced = [step.outputs[0] for step in plan.steps if step.op == "all_reduce"]
        self._meeting = device.pinned(max((4 * self._most(value) * value.size for value in reduced), default=0))
        nbytes = 4 * len(batch.outputs) * plan.vocab
        self._logits = Ref(Buffer(nbytes, device.allocate(nbytes)))
        self._host = device.pinned(nbytes)
        sampled, count = min(len(batch.outputs), len(batch.slots)), self._inputs.refs["counts"].at(1)
        self.sampling = Sampling(
            device, self._logits, plan.vocab, len(batch.outputs), sampled, count, self._inputs.state
        )
        self._readers = Readers(plan, joins)
        self._shared.load(self._readers.matrices(), progress)
        lowered = [self._lower(bucket, self._readers) for bucket in self._sizes()]
        kernels = {launch.kernel for calls in lowered for launch in calls.launches}
        kernels |= {launch.kernel for launch in self.sampling.prepare()} if before is None else set()
        if not device.compiled(kernels):  # the first start compiles for the steps to come too, so that none waits
            ahead = (self._lower(bucket, self._readers) for bucket in self._later_sizes())
            device.compile(kernels | {launch.kernel for calls in ahead for launch in calls.launches}, progress)
        device.prepare(kernels)
        self._arena_bytes = max(pack(calls.buffers) for calls in lowered)
        self._arena = device.allocate(self._arena_bytes)

    def _most(self, value: Value) -> int:
        """The most rows of a value."""
        return len(self._batch.tokens if value.rows == "tokens" else self._batch.outputs)

    def _sizes(self) -> list[Bucket]:
        """Sizes whose kernels and memory are made ready at once: a token, and a prompt; the others when they come."""
        tokens, outputs = len(self._batch.tokens), len(self._batch.outputs)
        return [Bucket.fit(self._batch, 1, 1, 1, 1), Bucket.fit(self._batch, tokens, outputs, 1, tokens)]

    def _later_sizes(self) -> list[Bucket]:
        """Sizes that are likely to come: a token of each of some sequences, and prompts."""
        batch, context = self._batch, PAGE * self._batch.tables.shape[1]
        sequences = [1 << i for i in range(len(batch.slots).bit_length())]
        prompts = [1 << i for i in range(1, len(batch.tokens).bit_length())]
        alone = [Bucket.fit(batch, n, n, n, depth) for n in sequences for depth in (1, context)]
        return [*alone, *(Bucket.fit(batch, n, 1, 1, n) for n in prompts)]

    @property
    def states(self) -> DeviceStates:
        return self._shared.states

    @property
    def workspace(self) -> int:
        return self._arena_bytes + self._logits.buffer.nbytes

    def _lower(self, bucket: Bucket, readers: Readers) -> Calls:
        calls = Calls(bucket, readers, self._shared, self._inputs, self._capacity, self._tables)
        lower(self._plan, calls, self._logits, self.sampling.ids)
        return calls

    def _launches(self, bucket: Bucket, readers: Readers | None = None) -> Calls:
        """What a step of this size does, in the arena."""
        calls = self._lower(bucket, readers or self._readers)
        size = pack(calls.buffers)
        if size > self._arena_bytes:  # graphs hold addresses, so the old arena stays for the others
            self._arena, self._arena_bytes = self._device.allocate(size), size
        for buffer in calls.buffers:
            buffer.address += self._arena
        return calls

    def launch(self, batch: Batch) -> Logits:
        """Begin a step."""
        bucket = Bucket.of(batch)
        if bucket not in self._graphs:
            calls = self._launches(bucket)
            launches = [*calls.launches, *self.sampling.likeliest(bucket.outputs)]
            self._device.prepare({launch.kernel for launch in launches})
            ends = [*(stop.launches for stop in calls.stops), len(launches)]
            graphs = [self._device.record(launches[start:end]) for start, end in pairwise([0, *ends])]
            self._graphs[bucket] = list(zip(graphs, [*calls.stops, None], strict=True))
        self._inputs.stage(batch)
        for number, (graph, stop) in enumerate(self._graphs[bucket]):
            graph.replay()
            if number == 0:  # it fetches the batch, whatever becomes of the others
                self._inputs.submitted()
            if stop is not None:
                self._add_up(stop, batch)
        return Logits(self, batch.n_outputs, bucket.outputs <= self.sampling.rows, self._inputs.number)

    def _add_up(self, stop: Stop, batch: Batch) -> None:
        """Put the sum over all ranks in the place of a value, by way of the host's memory."""
        rows = batch.n_tokens if stop.value.rows == "tokens" else batch.n_outputs
        block = self._meeting[: 4 * rows * stop.value.size]
        if rows:
            self._device.download(stop.place.ref.address, block)
            self._device.mark().wait()
        stop.link.all_reduce(block.view(np.float32))
        if rows:
            self._device.upload(block, stop.place.ref.address)
            self._device.mark().wait()  # the block is the next sum's

    def logits(self, count: int) -> npt.NDArray[np.float32]:
        """The first rows of the last step's logits."""
        rows = self._host[: 4 * count * self._plan.vocab]
        if count:
            self._device.download(self._logits.address, rows)
        self._device.mark().wait()
        return rows.view(np.float32).reshape(count, self._plan.vocab)

    def outputs(self, count: int) -> DeviceArray:
        """The first rows of the last step's logits, or of what else the plan computes, as they are on the device."""
        return DeviceArray(
            self._logits.address, (count, self._plan.vocab), "<f4", self._device.stream, self._device.index
        )

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        for name, table in self._tables.items():
            table.put(slot, pairs.get(name))

    def trace(self, batch: Batch) -> Iterator[tuple[int, dict[int, npt.NDArray[Any]]]]:
        """Walk step by step: the index of each step of the plan, and copies of its outputs by their ids.

        Nothing is fused, and matrices that are one otherwise are loaded apart.
        """
        calls = self._launches(Bucket.of(batch), Readers(self._plan, joins, fuse=False))
        self._device.prepare({launch.kernel for launch in calls.launches})
        self._inputs.stage(batch)
        launches: list[list[Launch]] = [[] for _ in self._plan.steps]
        for launch in calls.launches:
            launches[launch.step].append(launch)
        for index, step in enumerate(self._plan.steps):
            self._device.run(launches[index])
            if index == 0:
                self._inputs.submitted()
            yield index, {v.id: self._read(v, calls.places[v.id], batch) for v in step.outputs}

    def _read(self, value: Value, place: Place, batch: Batch) -> npt.NDArray[Any]:
        """A copy of a value, [rows, *shape]."""
        rows = batch.n_tokens if value.rows == "tokens" else batch.n_outputs
        reach = (rows - 1) * place.row + (place.outer - 1) * place.head + place.inner
        data = self._device.read(place.ref.address, 4 * reach).view(np.int32 if value.integer else np.float32)
        strides = (4 * place.row, 4 * place.head, 4)
        view = np.lib.stride_tricks.as_strided(data, (rows, place.outer, place.inner), strides)
        return view.reshape(rows, *value.shape).copy()

    def close(self) -> None:
        for graph in [graph for graphs in self._graphs.values() for graph, _ in graphs]:
            graph.close()
        self._graphs.clear()
        for table in self._tables.values():
            table.close()
        self._inputs.close()
        self.sampling.close()
        for address in (self._arena, self._logits.address):
            self._device.free(address)
        self._shared.release()


def joins(weight: Weight) -> bool:
    """Whether a matrix's rows can lie among those of others: whole groups of them do."""
    return weight.shape[0] % GROUP == 0 and weight.format.name != "BF16"
