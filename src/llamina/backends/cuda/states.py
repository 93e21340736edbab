"""The memory of states on the device: blocks whose rows are pages, places of windowed layers, or slots."""

from math import prod

import numpy as np

from llamina.backends import Capacity, state_shapes
from llamina.backends.cpu.memory import Buffer
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.memory import SIZES, Ref
from llamina.backends.states import UNITS, Unit
from llamina.errors import RequestError
from llamina.ops import State
from llamina.ops.batch import PAGE

TYPES = {"f32": "fp32", "f16": "fp16"}


class DeviceStates:
    """`refs` are the arrays of each state. A page, a place or a slot is the same row of several of them."""

    def __init__(self, device: Device, states: tuple[State, ...], capacity: Capacity) -> None:
        if capacity.kv_type not in TYPES:
            raise RequestError(
                f"kv_type is {capacity.kv_type!r}: backend='cuda' keeps {' or '.join(TYPES)}", "kv_type"
            )
        self._device = device
        self._rows: dict[Unit, list[tuple[int, int]]] = {unit: [] for unit in UNITS}  # address, bytes of a row
        self.refs: dict[State, list[Ref]] = {}
        for state in states:
            kind = "fp32" if state.kind == "recurrent" else TYPES[capacity.kv_type]
            self.refs[state] = []
            for shape in state_shapes(state, capacity, PAGE):
                nbytes = SIZES[kind] * prod(shape)
                address = device.allocate(max(1, nbytes))
                self.refs[state].append(Ref(Buffer(nbytes, address, own=True), 0, kind))
                self._rows[capacity.unit(state)].append((address, nbytes // shape[0]))

    def copy(self, unit: Unit, source: int, target: int) -> None:
        for address, size in self._rows[unit]:
            self._device.copy(address + source * size, address + target * size, size)

    def size(self, unit: Unit) -> int:
        return sum(size for _, size in self._rows[unit])

    def read(self, unit: Unit, index: int) -> bytes:
        return b"".join(self._device.read(address + index * size, size).tobytes() for address, size in self._rows[unit])

    def write(self, unit: Unit, index: int, data: bytes) -> None:
        start = 0
        for address, size in self._rows[unit]:
            self._device.write(address + index * size, np.frombuffer(data, np.uint8, size, start))
            start += size

    def close(self) -> None:
        for refs in self.refs.values():
            for ref in refs:
                self._device.free(ref.address)
