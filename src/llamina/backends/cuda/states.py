"""The memory of states on the device: blocks whose rows are pages, window pages, or slots, in the canonical layout."""

from collections.abc import Sequence

import numpy as np

from llamina.backends.base import UNITS, Bytes, Capacity, tensors
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.errors import RequestError
from llamina.ops import State, Unit

TYPES = {"f32": "fp32", "f16": "fp16"}


class DeviceStates:
    """`refs` are the arrays of each state. A page, a window page or a slot is the same row of several of them."""

    def __init__(self, device: Device, states: Sequence[State], capacity: Capacity) -> None:
        if capacity.kv_type not in TYPES:
            raise RequestError(f"kv_type is {capacity.kv_type!r}: backend='cuda' keeps {' or '.join(TYPES)}", "kv_type")
        self._device = device
        self._rows: dict[Unit, list[tuple[int, int]]] = {unit: [] for unit in UNITS}  # address, bytes of a row
        self.refs: dict[State, list[Ref]] = {state: [] for state in states}
        for tensor in tensors(states, capacity):
            nbytes = tensor.nbytes * capacity.count(tensor.unit)
            address = device.allocate(nbytes)
            self.refs[tensor.state].append(Ref(Buffer(nbytes, address), 0, TYPES[tensor.kind]))
            self._rows[tensor.unit].append((address, tensor.nbytes))

    def size(self, unit: Unit) -> int:
        return sum(size for _, size in self._rows[unit])

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            for address, size in self._rows[unit]:
                self._device.copy(address + source * size, address + target * size, size)

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        found = [self._device.read(at + index * size, size) for index in indexes for at, size in self._rows[unit]]
        return np.concatenate([np.zeros(0, np.uint8), *found]).reshape(len(indexes), self.size(unit))

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        for row, index in enumerate(indexes):
            start = 0
            for address, size in self._rows[unit]:
                self._device.write(address + index * size, data[row, start : start + size])
                start += size

    exported_size, export, restore = size, read, write  # nothing to convert

    def close(self) -> None:
        for refs in self.refs.values():
            for ref in refs:
                self._device.free(ref.address)
