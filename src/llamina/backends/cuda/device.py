"""What a program asks of a device. The driver has one implementation of it, Triton's interpreter another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Progress
from llamina.backends.cuda.memory import Ref

Constant = int | float | str | None
Argument = Ref | int | float | None
Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Triton function and what it is compiled for: the types of its parameters, and the constants among them.

    `name` is "file.function" under `kernels`. Parameters in `aligned` are multiples of 16, of which Triton makes wide
    loads: addresses in bytes, and strides. With `early`, it may begin before the kernel ahead of it has ended
    (programmatic dependent launch); it waits by itself.
    """

    name: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]
    aligned: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 3
    early: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, how many programs of it run, and the arguments that are not constants."""

    kernel: Kernel
    grid: Grid
    args: dict[str, Ref | int | float]
    step: int  # of the plan


def launch_of(
    name: str,
    grid: Grid,
    warps: int,
    stages: int,
    args: Mapping[str, Argument],
    constants: Mapping[str, Constant],
    step: int = 0,
) -> Launch:
    """A launch of a kernel that is compiled for these arguments; those that are None are constants too."""
    constants = {**constants, **{key: None for key, value in args.items() if value is None}}
    passed = {key: value for key, value in args.items() if value is not None}
    types = tuple((key, type_of(value)) for key, value in passed.items())
    aligned = tuple(key for key, value in passed.items() if _aligned(value))
    early = bool(constants.get("EARLY"))
    return Launch(Kernel(name, types, tuple(constants.items()), aligned, warps, stages, early), grid, passed, step)


def _aligned(value: Ref | int | float) -> bool:
    """Whether an argument is known to be a multiple of 16; buffers begin at such."""
    if isinstance(value, Ref):
        return value.offset % 16 == 0
    return isinstance(value, int) and value > 0 and value % 16 == 0


def type_of(value: Ref | int | float) -> str:
    """Triton's name for the type of an argument."""
    if isinstance(value, Ref):
        return f"*{value.type}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"


class Mark(Protocol):
    """A point in the device's work."""

    def wait(self) -> None:
        """Until all work before it is done."""
        ...


class Graph(Protocol):
    """Launches that are replayed together."""

    def replay(self) -> None: ...

    def close(self) -> None: ...


class Device(Protocol):
    """Memory and a queue of work; what is asked for later happens later. Addresses are those kernels use."""

    @property
    def name(self) -> str: ...

    @property
    def index(self) -> int:
        """Its number among the devices of its kind."""
        ...

    @property
    def stream(self) -> int | None:
        """The CUDA stream that work is done on; None where there is none."""
        ...

    @property
    def fp8(self) -> bool:
        """Whether it converts 8-bit floats."""
        ...

    @property
    def processors(self) -> int:
        """How many programs run side by side, at the least."""
        ...

    @property
    def early(self) -> bool:
        """Whether a kernel can begin while the one before it ends."""
        ...

    @property
    def interpreted(self) -> bool:
        """Whether kernels are so slow that NumPy does what it can."""
        ...

    def free_bytes(self) -> int: ...

    def allocate(self, nbytes: int) -> int:
        """Zeroed memory, at a multiple of 256 bytes; raises CapacityError where there is not enough."""
        ...

    def free(self, address: int) -> None: ...

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Memory of the host that copies reach without waiting; it is there as long as the device."""
        ...

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Any array of the host to the device; the array may change afterwards."""
        ...

    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Bytes of the device, after all work asked for before."""
        ...

    def upload(self, source: npt.NDArray[np.uint8], address: int) -> None:
        """Begin to copy pinned memory to the device."""
        ...

    def download(self, address: int, target: npt.NDArray[np.uint8]) -> None:
        """Begin to copy from the device to pinned memory."""
        ...

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Begin to copy from one place of the device to another."""
        ...

    def compiled(self, kernels: Iterable[Kernel]) -> bool:
        """Whether all of these are in the cache of compiled kernels."""
        ...

    def compile(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        """Have kernels in the cache of compiled kernels."""
        ...

    def prepare(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        """Have kernels ready to be launched; those that are not in the cache are compiled."""
        ...

    def run(self, launches: Sequence[Launch]) -> None:
        """Begin to run launches, one after the other."""
        ...

    def record(self, launches: Sequence[Launch]) -> Graph:
        """The same launches, to be replayed as often as wanted."""
        ...

    def mark(self) -> Mark: ...
