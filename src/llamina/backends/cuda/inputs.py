"""The batch on the device: its arrays in one block of memory, brought up to date by one copy a step."""

from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.cuda.device import Device, Mark
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.ops.batch import Batch

ALIGN = 64
VECTORS = ("counts", "tokens", "positions", "sequences", "outputs", "slots", "starts")
ADAPTERS = ("adapter_starts", "adapter_slots", "adapter_scales", "adapter_positions")


class Inputs:
    """`refs` are the arrays by their names in the batch. Tables come last, a row a sequence, as many as there are."""

    def __init__(self, device: Device, batch: Batch, *, adapters: bool, windows: bool, rows: bool = False) -> None:
        self._device = device
        names = (*VECTORS, *(ADAPTERS if adapters else ()))
        self._tables = ("tables", "window_tables") if windows else ("tables",)
        offsets, size = dict[str, int](), 0
        for name in names:
            offsets[name] = size
            size += -(-4 * getattr(batch, name).size // ALIGN) * ALIGN
        pages = batch.tables.shape[1]
        self.table_row = pages * len(self._tables)  # elements from one sequence's pages to the next one's
        self._first_row = size
        for i, name in enumerate(self._tables):
            offsets[name] = size + 4 * i * pages
        size += 4 * self.table_row * len(batch.tables)
        self.address = device.allocate(size)
        block = Buffer(size, self.address)
        self.refs = {
            name: Ref(block, at, "fp32" if name == "adapter_scales" else "i32") for name, at in offsets.items()
        }
        self._rows = _Rows(device, batch) if rows else None
        if self._rows is not None:
            self.refs["rows"] = self._rows.ref
        self._staging = [_Staging(device.pinned(size), offsets, batch, names, self._tables) for _ in range(2)]

    def upload(self, batch: Batch) -> None:
        """Begin to copy what the batch says; it may be filled again at once."""
        staging = self._staging[0]
        self._staging.reverse()
        if staging.mark is not None:
            staging.mark.wait()
        staging.fill(batch)
        end = self._first_row + 4 * self.table_row * batch.n_sequences
        self._device.upload(staging.block[:end], self.address)
        staging.mark = self._device.mark()
        if self._rows is not None:
            self._rows.upload(batch)

    def close(self) -> None:
        self._device.free(self.address)
        if self._rows is not None:
            self._device.free(self._rows.ref.address)


class _Rows:
    """The batch's rows, [tokens, width], in memory of their own: plans that begin with them are few."""

    def __init__(self, device: Device, batch: Batch) -> None:
        self._device, nbytes = device, batch.rows.nbytes
        self.ref = Ref(Buffer(nbytes, device.allocate(nbytes)))
        self._staging: list[tuple[npt.NDArray[np.uint8], list[Mark]]] = [(device.pinned(nbytes), []) for _ in range(2)]

    def upload(self, batch: Batch) -> None:
        memory, marks = self._staging[0]
        self._staging.reverse()
        for mark in marks:
            mark.wait()
        rows = batch.rows[: batch.n_tokens].reshape(-1).view(np.uint8)
        memory[: rows.nbytes] = rows
        self._device.upload(memory[: rows.nbytes], self.ref.address)
        marks[:] = [self._device.mark()]


class _Staging:
    """Pinned memory laid out as the device's block is."""

    def __init__(
        self,
        block: npt.NDArray[np.uint8],
        offsets: dict[str, int],
        batch: Batch,
        names: tuple[str, ...],
        tables: tuple[str, ...],
    ) -> None:
        self.block = block
        self.block[:] = 0  # what a step does not have is read all the same, and must be a token, a page, a sequence
        self.mark: Mark | None = None
        self._names, self._tables = names, tables
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        for name in names:
            array = getattr(batch, name)
            dtype = np.float32 if name == "adapter_scales" else np.int32
            self._arrays[name] = block[offsets[name] : offsets[name] + 4 * array.size].view(dtype)
        rows, pages = batch.tables.shape
        for name in tables:
            whole = block[offsets[tables[0]] :].view(np.int32).reshape(rows, len(tables), pages)
            self._arrays[name] = whole[:, tables.index(name)]

    def fill(self, batch: Batch) -> None:
        """Copy the parts that are in use."""
        tokens, outputs, sequences = batch.n_tokens, batch.n_outputs, batch.n_sequences
        used = {"counts": 3, "outputs": outputs, "slots": sequences, "starts": sequences + 1}
        if "adapter_starts" in self._names:
            adapters = int(batch.adapter_starts[sequences])
            used |= {"adapter_starts": sequences + 1} | dict.fromkeys(ADAPTERS[1:], adapters)
        for name in self._names:
            n = used.get(name, tokens)
            self._arrays[name][:n] = getattr(batch, name)[:n]
        self._arrays["tokens"][tokens:] = 0  # an earlier step's may refer to sampled ids, and are below 0
        for name in self._tables:
            self._arrays[name][:sequences] = getattr(batch, name)[:sequences]
