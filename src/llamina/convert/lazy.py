"""Lazy tensors: read and edited when they are written, so that one at a time is in memory."""

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
BLOCKS = "MXFP4"  # already in GGUF's blocks: the last axis of the values is bytes
CHUNK = 1 << 20  # values converted at a time
# safetensors' types and the NumPy types that hold them; BF16 and F8 as raw bits.
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
    """Shape and stored type of a tensor; `parts()` reads its values, in parts along the first axis."""

    shape: tuple[int, ...]
    dtype: str
    parts: Callable[[], Iterator[Array]]

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str, load: Callable[[], Array]) -> "Lazy":
        """Return a tensor that `load` reads as a whole."""
        return cls(tuple(shape), dtype, lambda: iter((load(),)))

    @classmethod
    def here(cls, values: Array) -> "Lazy":
        """Return a tensor of values in memory."""
        return cls.of(values.shape, "F32", lambda: values.astype(np.float32))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def load(self) -> Array:
        """Return all values, as they are stored."""
        parts = list(self.parts())
        return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(-1, *self.shape[1:]) for part in parts])

    def map(self, change: Callable[[Array], Array], shape: Sequence[int] | None = None) -> "Lazy":
        """Return the tensor with its values rearranged by a function; `shape` if that changes."""
        return Lazy.of(self.shape if shape is None else shape, self.dtype, lambda: change(self.load()))

    def compute(self, change: Callable[[Array], Array]) -> "Lazy":
        """Return the tensor with its values, as float32, changed by a function."""
        return Lazy.of(self.shape, "F32", lambda: change(floats(self.load(), self.dtype)))

    def encoded(self, kind: TensorType, name: str) -> Iterator[Array]:
        """Yield the values in a format of GGUF, in parts. Raises RequestError for values too large for F16."""
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
    """Return tensors of one shape stacked along a new first axis. Raises ModelFileError if they differ."""
    first = tensors[0]
    for tensor in tensors:
        if (tensor.shape, tensor.dtype) != (first.shape, first.dtype):
            raise ModelFileError(f"{name} would be made of tensors that differ: {first.shape} and {tensor.shape}")
    return Lazy((len(tensors), *first.shape), first.dtype, lambda: (tensor.load() for tensor in tensors))


def floats(values: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Return stored values as float32."""
    if dtype == "BF16":
        return decode(np.ascontiguousarray(values).view(np.uint8), "BF16")
    if dtype == "F8_E4M3":
        return _E4M3[values]
    return values.astype(np.float32, copy=False)


def _e4m3() -> npt.NDArray[np.float32]:
    """Return the value of each E4M3 float: no infinities, and NaN where all lower bits are set."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    size[(bits & 127) == 127] = np.nan
    return np.where(bits < 128, size, -size).astype(np.float32)


_E4M3 = _e4m3()
