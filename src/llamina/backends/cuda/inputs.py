"""The batch on the device: its arrays in one block of memory, which the first kernel of a step brings up to date."""

from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument, Device, Grid, Mark
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.ops.batch import Batch

ALIGN = 64
HEADER = 16  # words in front of what the host says, of which the first is the number of the step
BLOCK = 1024  # words that one program fetches
VECTORS = ("counts", "tokens", "positions", "sequences", "outputs", "slots", "starts")
ROWS = ("given", "rotary", "until")
ADAPTERS = ("adapter_starts", "adapter_slots", "adapter_scales", "adapter_positions")


class Inputs:
    """`refs` are the arrays by their names in the batch. Tables come last, a row a sequence, as many as there are.

    With `rows`, a batch may give embeddings: these are a block of their own, copied as far as there are tokens.
    """

    def __init__(self, device: Device, batch: Batch, *, adapters: bool, windows: bool, rows: bool = False) -> None:
        self._device, self.most_tokens = device, len(batch.tokens)
        names = (*VECTORS, *(ADAPTERS if adapters else ()), *(ROWS if rows else ()))
        self._tables = ("tables", "window_tables") if windows else ("tables",)
        offsets, size = dict[str, int](), 0
        for name in names:
            offsets[name] = size
            size += -(-4 * getattr(batch, name).size // ALIGN) * ALIGN
        self.sequences = power(len(batch.slots))  # the most there can be
        pages = batch.tables.shape[1]
        self.table_row = pages * len(self._tables)  # elements from one sequence's pages to the next one's
        self._first_row = size
        for i, name in enumerate(self._tables):
            offsets[name] = size + 4 * i * pages
        size += 4 * self.table_row * len(batch.tables)
        size = -(-size // (4 * BLOCK)) * 4 * BLOCK
        self.address, self._state = device.allocate(size), device.allocate(8)
        block = Buffer(size, self.address)
        self.refs = {
            name: Ref(block, at, "fp32" if name == "adapter_scales" else "i32") for name, at in offsets.items()
        }
        if rows:
            self.refs["rows"] = Ref(Buffer(batch.rows.nbytes, device.allocate(batch.rows.nbytes)))
        given = batch.rows.nbytes if rows else 0
        self._distance = 4 * HEADER + size
        self._host, self.number = device.pinned(2 * self._distance), 0  # of the last step that was asked for
        self._host[:] = 0  # what a step does not have is read all the same, and must be a token, a page, a sequence
        self._staging = [
            _Staging(block, device.pinned(given), offsets, batch, names, self._tables)
            for block in (self._host[: self._distance], self._host[self._distance :])
        ]

    def stage(self, batch: Batch) -> None:
        """Copy the batch to pinned memory for the next step; it may be filled again at once."""
        staging = self._staging[0]
        if staging.mark is not None:
            staging.mark.wait()
        staging.fill(batch)
        if "rows" in self.refs:
            self._device.upload(staging.fill_rows(batch), self.refs["rows"].address)
        staging.header[0] = np.int64(self.number + 1).astype(np.int32)  # the device compares differences

    def submitted(self) -> None:
        """The step's first kernels were launched. Without this, the next `stage` takes its place."""
        self._staging[0].mark = self._device.mark()
        self._staging.reverse()
        self.number += 1

    @property
    def state(self) -> Ref:
        """Where the device has the number of its step."""
        return Ref(Buffer(8, self._state), 0, "i32")

    def fetching(self, sequences: int) -> tuple[Grid, dict[str, Argument]]:
        """Programs and arguments of `inputs.fetch`, for a step of so many sequences."""
        host = Ref(Buffer(self._host.nbytes, self._host.ctypes.data), 0, "i32")
        args: dict[str, Argument] = {"host": host, "distance": self._distance // 4, "HEADER": HEADER, "BLOCK": BLOCK}
        args |= {"state": self.state, "inputs": Ref(self.refs["counts"].buffer, 0, "i32"), "tokens": self.most_tokens}
        args["first_token"] = self.refs["tokens"].offset // 4
        return (-(-(self._first_row // 4 + self.table_row * sequences) // BLOCK), 1, 1), args

    def close(self) -> None:
        self._device.free(self.address)
        self._device.free(self._state)
        if "rows" in self.refs:
            self._device.free(self.refs["rows"].address)


class _Staging:
    """Pinned memory laid out as the device's block is."""

    def __init__(
        self,
        block: npt.NDArray[np.uint8],
        rows: npt.NDArray[np.uint8],
        offsets: dict[str, int],
        batch: Batch,
        names: tuple[str, ...],
        tables: tuple[str, ...],
    ) -> None:
        self.header, block = block[: 4 * HEADER].view(np.int32), block[4 * HEADER :]
        self._rows = rows
        self.mark: Mark | None = None
        self._names, self._tables = names, tables
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        for name in names:
            array = getattr(batch, name)
            dtype = np.float32 if name == "adapter_scales" else np.int32
            self._arrays[name] = block[offsets[name] : offsets[name] + 4 * array.size].view(dtype).reshape(array.shape)
        count, pages = batch.tables.shape
        for name in tables:
            start = offsets[tables[0]]
            whole = block[start : start + 4 * count * len(tables) * pages].view(np.int32)
            whole = whole.reshape(count, len(tables), pages)
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
            self._arrays[name][..., :n] = getattr(batch, name)[..., :n]
        self._arrays["tokens"][tokens:] = 0  # an earlier step's may refer to sampled ids, and are below 0
        for name in self._tables:
            self._arrays[name][:sequences] = getattr(batch, name)[:sequences]

    def fill_rows(self, batch: Batch) -> npt.NDArray[np.uint8]:
        """Copy the rows of the step's tokens; the bytes of them."""
        rows = batch.rows[: batch.n_tokens]
        found = self._rows[: rows.nbytes]
        found.view(np.float32).reshape(rows.shape)[:] = rows
        return found
