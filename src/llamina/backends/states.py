"""The memory of states on the host: arrays whose first axis counts pages, places of near ones, or slots."""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

Unit = Literal["page", "near", "slot"]
UNITS: tuple[Unit, ...] = get_args(Unit)


class HostStates:
    """States that NumPy can reach. A page, a place or a slot is the same row of several arrays."""

    def __init__(self) -> None:
        self._arrays: dict[Unit, list[npt.NDArray[Any]]] = {unit: [] for unit in UNITS}

    def add(self, unit: Unit, array: npt.NDArray[Any]) -> None:
        self._arrays[unit].append(array)

    def copy(self, unit: Unit, source: int, target: int) -> None:
        for array in self._arrays[unit]:
            array[target] = array[source]

    def size(self, unit: Unit) -> int:
        return sum(array[0].nbytes for array in self._arrays[unit])

    def read(self, unit: Unit, index: int) -> bytes:
        return b"".join(array[index].tobytes() for array in self._arrays[unit])

    def write(self, unit: Unit, index: int, data: bytes) -> None:
        start = 0
        for array in self._arrays[unit]:
            row = array[index]
            part = np.frombuffer(data, array.dtype, row.size, start)
            array[index] = part.reshape(row.shape)
            start += row.nbytes
