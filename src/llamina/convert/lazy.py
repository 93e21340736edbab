"""Tensors that are read when their turn to be written comes, so that one is in memory at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.errors import ModelFileError, RequestError
from llamina.gguf import TensorType
from llamina.quant import decode, encode

Array = npt.NDArray[Any]
BLOCKS = "MXFP4"  # stored as GGUF has them: the last axis of the values is bytes
CHUNK = 1 << 20  # values turned into floats at once
# safetensors' names of types, and the NumPy types that hold them; BF16 and F8 keep their bits.
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "U8": np.dtype("u1"),
}
_LARGEST_F16 = 65504.0


@dataclass(frozen=True, slots=True)
class Lazy:
    """A tensor to come: its shape, how its values are stored, and what reads them, in parts along the first axis."""

    shape: tuple[int, ...]
    dtype: str
    parts: Callable[[], Iterator[Array]]

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str, load: Callable[[], Array]) -> "Lazy":
        """A tensor read in one go."""
        return cls(tuple(shape), dtype, lambda: iter((load(),)))

    @classmethod
    def here(cls, values: Array) -> "Lazy":
        """Values that are in memory already."""
        return cls.of(values.shape, "F32", lambda: values.astype(np.float32))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def load(self) -> Array:
        """All values, as they are stored."""
        parts = list(self.parts())
        return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(-1, *self.shape[1:]) for part in parts])

    def map(self, change: Callable[[Array], Array], shape: Sequence[int] | None = None) -> "Lazy":
        """The tensor with its values moved about; `shape` where it becomes another."""
        return Lazy.of(self.shape if shape is None else shape, self.dtype, lambda: change(self.load()))

    def compute(self, change: Callable[[Array], Array]) -> "Lazy":
        """The tensor with its values changed, as floats."""
        return Lazy.of(self.shape, "F32", lambda: change(floats(self.load(), self.dtype)))

    def encoded(self, kind: TensorType, name: str) -> Iterator[Array]:
        """The values in a format of GGUF; `name` is for the error message."""
        for part in self.parts():
            rows = part.reshape(-1, part.shape[-1])
            step = max(1, CHUNK // self.shape[-1])
            for start in range(0, len(rows), step):
                yield self._encode(rows[start : start + step], kind, name)

    def _encode(self, rows: Array, kind: TensorType, name: str) -> Array:
        if kind.name == self.dtype:
            return rows
        values = floats(rows, self.dtype)
        if kind.name == "F16" and (largest := float(np.max(np.abs(values), initial=0))) > _LARGEST_F16:
            raise RequestError(f"{name} holds {largest:g}, which is too large for F16: choose bf16 or f32", "type")
        return encode(values, kind)


def stack(tensors: Sequence[Lazy], name: str) -> Lazy:
    """Equal tensors, one after the other along a new first axis; `name` is for the error message."""
    first = tensors[0]
    for tensor in tensors:
        if (tensor.shape, tensor.dtype) != (first.shape, first.dtype):
            raise ModelFileError(f"{name} would be made of tensors that differ: {first.shape} and {tensor.shape}")
    return Lazy((len(tensors), *first.shape), first.dtype, lambda: (tensor.load() for tensor in tensors))


def floats(values: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Stored values as float32."""
    if dtype == "BF16":
        return decode(np.ascontiguousarray(values).view(np.uint8), "BF16")
    if dtype == "F8_E4M3":
        return _E4M3[values]
    return values.astype(np.float32, copy=False)


def _e4m3() -> npt.NDArray[np.float32]:
    """Every float of sign 1, exponent 4, mantissa 3: no infinities, and a NaN at either end."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    size[(bits & 127) == 127] = np.nan
    return np.where(bits < 128, size, -size).astype(np.float32)


_E4M3 = _e4m3()
