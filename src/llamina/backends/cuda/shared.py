"""What the programs of one model share on a device: weights, constants, and the states of sequences."""

import hashlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import host
from llamina.backends.base import Capacity, Progress
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.kernels.layout import Layout
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.backends.cuda.states import DeviceStates
from llamina.ops import State, Weight
from llamina.quant import decode

TYPES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "int64": "i64", "uint8": "u8", "int8": "i8",
         "float64": "fp64", "uint64": "i64"}  # fmt: skip
AHEAD = 32  # matrices that are re-laid before their turn comes


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight on the device: its layout, the arrays by name, and what tensor cores' products are divided by."""

    layout: Layout
    arrays: dict[str, Ref]
    gain: float


Packed = tuple[Layout, dict[str, npt.NDArray[Any]], float]


def _pack(weights: Sequence[Weight]) -> Packed:
    """Matrices as they will be on the device, one below the other."""
    parts: list[Packed] = []
    for w in weights:
        *experts, rows, columns = w.shape
        layout = Layout.of(w.format.name, rows, columns, experts[0] if experts else 1)
        data = w.data.reshape(-1, w.data.nbytes // (rows * layout.experts))
        parts.append((layout, layout.pack(data), layout.gain(data)))
    layout, arrays, gain = parts[0]
    if len(parts) > 1:
        layout = replace(layout, rows=sum(part[0].rows for part in parts))
        arrays = {name: np.concatenate([part[1][name] for part in parts]) for name in arrays}
        gain = min(part[2] for part in parts)
    return layout, arrays, gain


def _key(w: Weight) -> tuple[Any, ...]:
    return w.name, w.shape, w.data.ctypes.data


class Shared:
    """Given back when the last of its programs is closed."""

    def __init__(self, device: Device, states: Sequence[State], capacity: Capacity) -> None:
        self.device = device
        self.states = DeviceStates(device, states, capacity)
        self.users = 0
        self._arrays: dict[Any, Ref] = {}
        self._matrices: dict[Any, Matrix] = {}

    def array(self, array: npt.NDArray[Any]) -> Ref:
        """An array of numbers on the device; equal ones are there once."""
        key = array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest()
        if key not in self._arrays:
            self._arrays[key] = self._upload(array)
        return self._arrays[key]

    def constant(self, w: Weight) -> Ref:
        """A tensor as float32."""
        key = _key(w)
        if key not in self._arrays:
            self._arrays[key] = self._upload(decode(w.data, w.format, w.shape))
        return self._arrays[key]

    def joined(self, weights: Sequence[Weight]) -> Ref:
        """Small tensors as float32, one after the other."""
        key = tuple(map(_key, weights))
        if key not in self._arrays:
            parts = [decode(w.data, w.format, w.shape).reshape(-1) for w in weights]
            self._arrays[key] = self._upload(np.concatenate(parts))
        return self._arrays[key]

    def matrix(self, weights: Sequence[Weight]) -> Matrix:
        """A matrix, or one for each expert, as the kernels of products read it; several are one with all their rows.

        Raises UnsupportedModel for a format that has no layout.
        """
        key = tuple(map(_key, weights))
        if key not in self._matrices:
            self.load([weights])
        return self._matrices[key]

    def load(self, matrices: Sequence[Sequence[Weight]], progress: Progress | None = None) -> None:
        """Have matrices on the device: some threads re-lay the next ones while one is copied."""
        keys = {tuple(map(_key, weights)): weights for weights in matrices}
        waiting = deque((key, weights) for key, weights in keys.items() if key not in self._matrices)
        total = len(waiting)
        with ThreadPoolExecutor(host.usable_cores()) as threads:
            packing = deque[tuple[Any, Future[Packed]]]()
            while waiting or packing:
                while waiting and len(packing) < AHEAD:
                    key, weights = waiting.popleft()
                    packing.append((key, threads.submit(_pack, weights)))
                key, packed = packing.popleft()
                if progress:
                    progress(key[0][0], total - len(waiting) - len(packing) - 1, total)
                layout, arrays, gain = packed.result()
                self._matrices[key] = Matrix(layout, {n: self._upload(a) for n, a in arrays.items()}, gain)

    def _upload(self, array: npt.NDArray[Any]) -> Ref:
        address = self.device.allocate(array.nbytes)
        self.device.write(address, array)
        return Ref(Buffer(array.nbytes, address), 0, TYPES[array.dtype.name])

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        if not self.users:
            held = [*self._arrays.values(), *(ref for m in self._matrices.values() for ref in m.arrays.values())]
            for ref in held:
                self.device.free(ref.address)
            self._arrays.clear()
            self._matrices.clear()
            self.states.close()
