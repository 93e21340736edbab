"""What the programs of one model share on a device: weights, constants, and the states of sequences."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Capacity, Progress
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.loading import Matrix, load
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.backends.cuda.states import DeviceStates
from llamina.errors import CapacityError
from llamina.ops import State, Weight
from llamina.quant import decode

TYPES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "int64": "i64", "uint8": "u8", "int8": "i8",
         "float64": "fp64", "uint64": "i64"}  # fmt: skip


def _key(w: Weight) -> tuple[Any, ...]:
    return w.name, w.shape, w.data.ctypes.data


class Shared:
    """Given back when the last of its programs is closed."""

    def __init__(self, device: Device, states: Sequence[State], capacity: Capacity, exact: bool = False) -> None:
        self.device, self.exact = device, exact  # bits of a token do not depend on its step
        self.states = DeviceStates(device, states, capacity)
        self.users = 0
        self._arrays: dict[Any, Ref] = {}
        self._matrices: dict[Any, Matrix] = {}
        self._scratch: list[Buffer] = []  # the last is the largest; graphs hold addresses of the others

    def scratch(self, nbytes: int) -> Buffer | None:
        """Memory that any step may use as it goes, the same for all; None where there is not enough."""
        if not self._scratch or self._scratch[-1].nbytes < nbytes:
            try:
                self._scratch.append(Buffer(nbytes, self.device.allocate(nbytes)))
            except CapacityError:
                return None
        return self._scratch[-1]

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
        """Have matrices on the device."""
        wanted = {tuple(map(_key, weights)): weights for weights in matrices}
        wanted = {key: weights for key, weights in wanted.items() if key not in self._matrices}
        for key, matrix in zip(wanted, load(self.device, list(wanted.values()), progress), strict=True):
            self._matrices[key] = matrix

    def _upload(self, array: npt.NDArray[Any]) -> Ref:
        address = self.device.allocate(array.nbytes)
        self.device.write(address, array)
        return Ref(Buffer(array.nbytes, address), 0, TYPES[array.dtype.name])

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        if not self.users:
            held = [*self._arrays.values(), *(ref for m in self._matrices.values() for ref in m.arrays.values())]
            for address in (*(ref.address for ref in held), *(buffer.address for buffer in self._scratch)):
                self.device.free(address)
            self._arrays.clear()
            self._scratch.clear()
            self._matrices.clear()
            self.states.close()
