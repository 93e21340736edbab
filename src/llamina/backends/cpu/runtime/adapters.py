"""Where the kernels find what LoRA adapters add to one matrix."""

import numpy as np
import numpy.typing as npt

from llamina.ops import LowRank
from llamina.ops.batch import ADAPTERS


def round_up(n: int) -> int:
    """To whole vectors of 8."""
    return (n + 7) & ~7


class AdapterTable:
    """A row per slot: the addresses of a and b, the rank (0: nothing there), and the scale as a double.

    Ranks and rows are padded with zeros to whole vectors, and b is transposed, so that outputs lie side by side.
    """

    def __init__(self, op: str) -> None:
        self.rows = np.zeros((ADAPTERS, 4), np.int64)
        self._op = op
        self._kept: dict[int, list[npt.NDArray[np.float32]]] = {}

    def put(self, slot: int, pair: LowRank | None) -> None:
        """Put an adapter's pair into a slot; None empties it."""
        self.rows[slot] = 0
        self._kept.pop(slot, None)
        if pair is None:
            return
        rows = _padded(pair.a, 1 if self._op == "embed" else 2), _padded(np.swapaxes(pair.b, -1, -2), 2)
        self._kept[slot] = list(rows)
        self.rows[slot, :3] = rows[0].ctypes.data, rows[1].ctypes.data, round_up(pair.rank)
        self.rows[slot].view(np.float64)[3] = pair.scale


def _padded(x: npt.NDArray[np.float32], axes: int) -> npt.NDArray[np.float32]:
    """Zeros behind the last axes."""
    shape = (*x.shape[:-axes], *(round_up(n) for n in x.shape[-axes:]))
    out = np.zeros(shape, np.float32)
    out[tuple(slice(n) for n in x.shape)] = x
    return out
