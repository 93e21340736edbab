"""States in the host's memory: arrays whose first axis counts pages, window pages or slots."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import UNITS, Bytes, Tensor
from llamina.ops import Unit

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's memory, [count, …], and how a row of it becomes the canonical layout and comes back from it."""

    tensor: Tensor
    rows: Array
    export: Callable[[Array], Array]
    restore: Callable[[Array], Array]


class HostStates:
    """States that NumPy can reach. A page, a window page or a slot is the same row of several arrays."""

    def __init__(self, stored: Sequence[Stored]) -> None:
        self._stored: dict[Unit, list[Stored]] = {u: [s for s in stored if s.tensor.unit == u] for u in UNITS}

    def size(self, unit: Unit) -> int:
        return sum(stored.rows[0].nbytes for stored in self._stored[unit])

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        for stored in self._stored[unit]:
            for source, target in pairs:
                stored.rows[target] = stored.rows[source]

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        found = np.empty((len(indexes), self.size(unit)), np.uint8)
        for stored, columns in self._columns(unit, [stored.rows[0].nbytes for stored in self._stored[unit]]):
            for row, index in enumerate(indexes):
                found[row, columns] = _flat(stored.rows[index])
        return found

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        for stored, columns in self._columns(unit, [stored.rows[0].nbytes for stored in self._stored[unit]]):
            for row, index in enumerate(indexes):
                stored.rows[index] = _like(data[row, columns], stored.rows)

    def exported_size(self, unit: Unit) -> int:
        return sum(stored.tensor.nbytes for stored in self._stored[unit])

    def export(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        found = np.empty((len(indexes), self.exported_size(unit)), np.uint8)
        for stored, columns in self._columns(unit, [stored.tensor.nbytes for stored in self._stored[unit]]):
            for row, index in enumerate(indexes):
                found[row, columns] = _flat(stored.export(stored.rows[index]))
        return found

    def restore(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        for stored, columns in self._columns(unit, [stored.tensor.nbytes for stored in self._stored[unit]]):
            for row, index in enumerate(indexes):
                stored.rows[index] = _like(stored.restore(data[row, columns]), stored.rows)

    def _columns(self, unit: Unit, sizes: list[int]) -> Iterator[tuple[Stored, slice]]:
        """Each tensor, and where its bytes are among those of a page, a window page or a slot."""
        ends = accumulate(sizes)
        for stored, size, end in zip(self._stored[unit], sizes, ends, strict=True):
            yield stored, slice(end - size, end)


def _flat(x: Array) -> Bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def _like(x: Array, rows: Array) -> Array:
    """The bytes of one row, seen as a row of that array."""
    return _flat(x).view(rows.dtype).reshape(rows.shape[1:])
