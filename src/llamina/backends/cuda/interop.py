"""Arrays of the GPU for other libraries, without a copy."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeviceArray:
    """What `torch.as_tensor`, CuPy and Numba take by the CUDA array interface: contiguous numbers on a GPU.

    They are there once the work before on `stream` is done, belong to the program, and change with its next step.
    """

    address: int
    shape: tuple[int, ...]
    typestr: str  # as NumPy has it; bfloat16 is "<u2", its bits
    stream: int | None  # None: there is nothing to wait for
    device: int = 0  # the GPU's number

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": self.shape, "typestr": self.typestr, "data": data, "version": 3, "stream": self.stream}
