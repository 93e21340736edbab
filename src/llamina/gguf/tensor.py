"""A tensor of a file: its name, shape and type from the header, and its bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf.types import ByteOrder, Bytes, TensorType

# Offsets of the 16-bit numbers in a block, for types whose other fields are single bytes. The types that are not
# listed have wider fields, or words read as bytes, for which no big-endian layout is defined.
_HALVES: dict[str, tuple[int, ...]] = {
    "Q1_0": (0,),
    "Q2_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
    "NVFP4": (),
}


def swap_bytes(data: Bytes, kind: TensorType, name: str) -> Bytes:
    """Return a copy of tensor data in the other byte order. Raises UnsupportedModel for types without one.

    `name` is for the error message.
    """
    if kind.block == 1:
        return np.ascontiguousarray(data.reshape(-1, kind.nbytes)[:, ::-1]).reshape(-1)
    if kind.name not in _HALVES:
        raise UnsupportedModel(f"{name} is {kind.name}, which has no defined big-endian form: use a little-endian file")
    blocks = data.reshape(-1, kind.nbytes).copy()
    for at in _HALVES[kind.name]:
        blocks[:, [at, at + 1]] = blocks[:, [at + 1, at]]
    return blocks.reshape(-1)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor of a GGUF file.

    `shape` is in NumPy's order, rows first: GGUF's dimensions reversed. `offset` is from the file's start.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    byteorder: ByteOrder = "little"
    file: Bytes | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """The size of the stored data in bytes."""
        return self.type.size(self.shape)

    @property
    def data(self) -> Bytes:
        """The stored bytes, little-endian and flat.

        A read-only view into the mapped file, which it keeps alive; of a big-endian file, a swapped copy made
        on each access. Raises RequestError for a tensor from `open_url`, which has no data.
        """
        if self.file is None:
            raise RequestError(f"{self.name} was read from a URL, header only: download the file to get its data")
        view = self.file[self.offset : self.offset + self.nbytes]
        return view if self.byteorder == "little" else swap_bytes(view, self.type, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedTensor(Tensor):
    """A tensor that is in no file yet: `make` computes its bytes, each time `data` is read."""

    offset: int = 0
    make: Callable[[], Bytes] = field(repr=False, compare=False)

    @property
    def data(self) -> Bytes:
        """The bytes, little-endian and flat."""
        return self.make()
