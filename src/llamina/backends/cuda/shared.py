"""What the programs of one model share on a device: weights, constants, and the states of sequences."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity
from llamina.backends.cpu.memory import Buffer
from llamina.backends.cuda.device import Device
from llamina.backends.cuda.memory import Ref
from llamina.backends.cuda.states import DeviceStates
from llamina.ops import State, Weight
from llamina.quant import decode

TYPES = {"float32": "fp32", "float16": "fp16", "int32": "i32", "int64": "i64", "uint8": "u8", "int8": "i8",
         "float64": "fp64", "uint64": "i64"}  # fmt: skip


class Shared:
    """Given back when the last of its programs is closed."""

    def __init__(self, device: Device, states: tuple[State, ...], capacity: Capacity) -> None:
        self.device = device
        self.states = DeviceStates(device, states, capacity)
        self.users = 0
        self._held: dict[Any, Ref] = {}

    def array(self, array: npt.NDArray[Any]) -> Ref:
        """An array of numbers on the device; equal ones are there once."""
        key = array.dtype.str, array.shape, hashlib.sha256(np.ascontiguousarray(array)).digest()
        return self.hold(key, lambda: array)

    def constant(self, w: Weight) -> Ref:
        """A tensor as float32."""
        return self.hold(("fp32", *_identity(w)), lambda: decode(w.data, w.format, w.shape))

    def hold(self, key: Any, make: Any) -> Ref:
        """What `make` returns, uploaded the first time that it is asked for."""
        if key not in self._held:
            array = np.ascontiguousarray(make())
            address = self.device.allocate(max(1, array.nbytes))
            self.device.write(address, array)
            self._held[key] = Ref(Buffer(array.nbytes, address, own=True), 0, TYPES[array.dtype.name])
        return self._held[key]

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        if not self.users:
            for ref in self._held.values():
                self.device.free(ref.address)
            self._held.clear()
            self.states.close()


def _identity(w: Weight) -> tuple[Any, ...]:
    return w.name, w.shape, w.data.ctypes.data
