"""The memory of states on the device: blocks whose rows are pages, window pages, or slots.

They lie as in the canonical layout, but that the scales of quantized keys and values are behind all the integers or
8-bit floats of a head's page, so that kernels read these by 16 bytes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from llamina.backends.base import UNITS, Bytes, Capacity, Tensor, tensors
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.interop import DeviceArray
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.backends.kv_types import FLOATS, KvType
from llamina.ops import State, Unit
from llamina.ops.batch import PAGE

TYPES: dict[KvType, str] = {
    "f16": "fp16",
    "f32": "fp32",
    "bf16": "bf16",
    "q8_0": "i8",
    "q4_0": "u8",
    "fp8": "u8",
}  # of pointers

TYPESTRS = {"f16": "<f2", "f32": "<f4", "bf16": "<u2"}  # of NumPy


class DeviceStates:
    """`refs` are the arrays of each state. A page, a window page or a slot is the same row of several of them."""

    def __init__(self, device: Device, states: Sequence[State], capacity: Capacity) -> None:
        self._device, self._counts = device, {unit: capacity.count(unit) for unit in UNITS}
        self._rows: dict[Unit, list[tuple[int, Tensor]]] = {unit: [] for unit in UNITS}  # address of the first
        self.refs: dict[State, list[Ref]] = {state: [] for state in states}
        for tensor in tensors(states, capacity):
            nbytes = tensor.nbytes * capacity.count(tensor.unit)
            address = device.allocate(nbytes)
            self.refs[tensor.state].append(Ref(Buffer(nbytes, address), 0, TYPES[tensor.kind]))
            self._rows[tensor.unit].append((address, tensor))

    def size(self, unit: Unit) -> int:
        return sum(tensor.nbytes for _, tensor in self._rows[unit])

    exported_size = size

    def copy(self, unit: Unit, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            for address, tensor in self._rows[unit]:
                size = tensor.nbytes
                self._device.copy(address + source * size, address + target * size, size)

    def read(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        rows = [(at + i * tensor.nbytes, tensor.nbytes) for i in indexes for at, tensor in self._rows[unit]]
        found = [self._device.read(at, size) for at, size in rows]
        return np.concatenate([np.zeros(0, np.uint8), *found]).reshape(len(indexes), self.size(unit))

    def write(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        for address, tensor, columns in self._columns(unit):
            for row, index in enumerate(indexes):
                self._device.write(address + index * tensor.nbytes, data[row, columns])

    def export(self, unit: Unit, indexes: Sequence[int]) -> Bytes:
        found = self.read(unit, indexes)
        for _, tensor, columns in self._columns(unit):
            found[:, columns] = _exported(found[:, columns], tensor)
        return found

    def restore(self, unit: Unit, indexes: Sequence[int], data: Bytes) -> None:
        data = data.copy()
        for _, tensor, columns in self._columns(unit):
            data[:, columns] = _restored(data[:, columns], tensor)
        self.write(unit, indexes, data)

    def _columns(self, unit: Unit) -> Iterator[tuple[int, Tensor, slice]]:
        """Each tensor, its address, and where its bytes are among those of a page, a window page or a slot."""
        start = 0
        for address, tensor in self._rows[unit]:
            yield address, tensor, slice(start, start + tensor.nbytes)
            start += tensor.nbytes

    def arrays(self, unit: Unit) -> list[tuple[State, DeviceArray]]:
        """All pages, window pages or slots as they are on the device: keys before values of each state.

        [count, heads, 16, dim] of floats, [count, heads, bytes] of a quantized cache, [count, *shape] of slots.
        """
        found = []
        for address, tensor in self._rows[unit]:
            floats, heads = TYPESTRS.get(tensor.kind), tensor.shape[0]
            shape = tensor.shape if floats else (heads, tensor.nbytes // heads)
            shape, device = (self._counts[unit], *shape), self._device
            array = DeviceArray(address, shape, floats or "|u1", device.stream, device.index)
            found.append((tensor.state, array))
        return found

    def close(self) -> None:
        for refs in self.refs.values():
            for ref in refs:
                self._device.free(ref.address)


def _runs(tensor: Tensor) -> int:
    """Scales of a row."""
    return 1 if tensor.kind == "fp8" else -(-tensor.shape[-1] // 32)


def _exported(x: Bytes, tensor: Tensor) -> Bytes:
    """Pages [n, nbytes] in the canonical layout: the scale before each block."""
    if tensor.kind in FLOATS:
        return x
    n, heads, runs = len(x), tensor.shape[0], _runs(tensor)
    x = x.reshape(n, heads, -1)
    scales = x[..., -2 * PAGE * runs :].reshape(n, heads, PAGE, runs, 2)
    blocks = x[..., : -2 * PAGE * runs].reshape(n, heads, PAGE, runs, -1)
    return np.concatenate([scales, blocks], axis=-1).reshape(n, -1)


def _restored(data: Bytes, tensor: Tensor) -> Bytes:
    """What `_exported` was made of."""
    if tensor.kind in FLOATS:
        return data
    n, heads = len(data), tensor.shape[0]
    blocks = data.reshape(n, heads, PAGE, _runs(tensor), -1)
    parts = [blocks[..., 2:].reshape(n, heads, -1), blocks[..., :2].reshape(n, heads, -1)]
    return np.concatenate(parts, axis=-1).reshape(n, -1)
