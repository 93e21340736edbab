"""Where the kernels find what adapters add to one matrix."""

import numpy as np
import numpy.typing as npt

from llamina.backends.cuda.device import Device
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.ops import LowRank
from llamina.ops.batch import ADAPTERS


class Table:
    """A row per slot: the addresses of a and b, the rank (0: nothing there), and the scale as a double."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._rows = np.zeros((ADAPTERS, 4), np.int64)
        self._held: dict[int, list[int]] = {}
        address = device.allocate(self._rows.nbytes)
        self.ref = Ref(Buffer(self._rows.nbytes, address), 0, "i64")

    def put(self, slot: int, pair: LowRank | None) -> None:
        """Put a pair into a slot, or empty it."""
        gone = self._held.pop(slot, [])
        self._rows[slot] = 0
        if pair is not None:
            self._held[slot] = [self._upload(pair.a), self._upload(pair.b)]
            self._rows[slot, :3] = *self._held[slot], pair.rank
            self._rows[slot].view(np.float64)[3] = pair.scale
        self._device.write(self.ref.address, self._rows)
        for address in gone:
            self._device.free(address)

    def _upload(self, matrix: npt.NDArray[np.float32]) -> int:
        address = self._device.allocate(matrix.nbytes)
        self._device.write(address, matrix)
        return address

    def close(self) -> None:
        for address in [self.ref.address, *(a for held in self._held.values() for a in held)]:
            self._device.free(address)
