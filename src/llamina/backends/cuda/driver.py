"""The CUDA driver's own interface, through ctypes: what a program needs of it and no more."""

import ctypes
import sys
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

from llamina.errors import CapacityError, KernelError, RequestError

OUT_OF_MEMORY = 2
NO_DEVICE = 100
CAPTURE_RELAXED = 2
STREAM_NON_BLOCKING = 1
EVENT_NO_TIMING = 2
HOST_PORTABLE = 1
SHARED_BYTES = 8  # function attribute: dynamic shared memory
EARLY = 6  # launch attribute: programmatic stream serialization
PROCESSORS, MAJOR, MINOR, MOST_SHARED = 16, 75, 76, 97  # device attributes


class Attribute(Structure):
    """CUlaunchAttribute with a whole number as its value."""

    _fields_ = (("id", c_int), ("pad", c_char * 4), ("value", c_int), ("rest", c_char * 60))


class Config(Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", c_void_p),
        ("attributes", POINTER(Attribute)),
        ("count", c_uint),
    )


class Driver:
    """Calls that raise where the driver says that they failed."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.cuGetErrorString.argtypes = [c_int, POINTER(c_char_p)]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; raises CapacityError if memory is short, and KernelError otherwise."""
        result = getattr(self._library, name)(*arguments)
        if result == OUT_OF_MEMORY:
            raise CapacityError(
                f"the GPU has no memory left ({name}): load the model with a smaller context, or a smaller model"
            )
        if result:
            raise KernelError(f"the CUDA driver's {name} failed with {result}: {self.message(result)}")

    def message(self, result: int) -> str:
        text = c_char_p()
        self._library.cuGetErrorString(result, byref(text))
        return (text.value or b"unknown error").decode()

    def make(self, name: str, *arguments: Any) -> int:
        """What a function writes to its first argument: a handle or an address."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle.value or 0

    def make_second(self, name: str, first: Any) -> int:
        """The same of a function that writes to its second argument."""
        handle = c_void_p()
        self.call(name, first, byref(handle))
        return handle.value or 0

    def number(self, name: str, *arguments: Any) -> int:
        """The int that a function writes to its first argument."""
        value = c_int()
        self.call(name, byref(value), *arguments)
        return value.value

    def device_count(self) -> int:
        """Start the driver and count GPUs; none is an answer."""
        started = self._library.cuInit(0)
        if started == NO_DEVICE:
            return 0
        if started:
            raise RequestError(
                f"backend='cuda' needs a working NVIDIA driver: it says {self.message(started)}", "backend"
            )
        return self.number("cuDeviceGetCount")

    def device_name(self, device: int) -> str:
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        return name.value.decode()

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        stream: int,
        early: bool,
        values: Any,
    ) -> None:
        """Launch a kernel; `values` is an array of pointers to its arguments."""
        attribute = Attribute(EARLY, b"", 1, b"")
        config = Config(*grid, threads, 1, 1, shared, stream, ctypes.pointer(attribute), int(early))
        self.call("cuLaunchKernelEx", byref(config), c_void_p(function), values, None)


def address(value: int) -> c_ulonglong:
    """A device address as the driver takes it."""
    return c_ulonglong(value)


@cache
def open_driver() -> Driver:
    """The driver; raises RequestError if it is not installed."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    load: Callable[[str], Any] = getattr(ctypes, "WinDLL", ctypes.CDLL)
    try:
        return Driver(load(name))
    except OSError as error:
        raise RequestError(
            f"backend='cuda' needs an NVIDIA driver, and {name} is not to be found: use backend='cpu'", "backend"
        ) from error
