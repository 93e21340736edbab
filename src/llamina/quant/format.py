"""Quantization formats by id, and dequantizing (`decode`) and quantizing (`encode`) whole tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf.types import TENSOR_TYPES, TensorType, tensor_type
from llamina.quant import iquants, kquants, legacy, microscale, plain, ternary
from llamina.quant.bits import F32, U8

Decode: TypeAlias = Callable[[U8], F32]
Encode: TypeAlias = Callable[[F32], U8]

CHUNK = 1 << 18
"""Values decoded at a time: bounds a decoder's temporary arrays to a few megabytes."""


@dataclass(frozen=True, slots=True)
class Format:
    """How one tensor type is dequantized and quantized.

    `decode` maps uint8 [..., nbytes] to float32 [..., block], bit for bit as ggml does; `encode` is the inverse, and
    None for formats that can only be read. Both take one or more blocks, contiguous along the last axis.
    """

    type: TensorType
    decode: Decode
    encode: Encode | None = None

    @property
    def name(self) -> str:
        return self.type.name

    @property
    def block(self) -> int:
        return self.type.block

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    def __str__(self) -> str:
        return self.name


_FAMILIES = (plain, legacy, kquants, iquants, ternary, microscale)
_DECODERS: dict[str, Decode] = {name: decode for f in _FAMILIES for name, decode in f.DECODERS.items()}
_ENCODERS: dict[str, Encode] = {**plain.ENCODERS, **legacy.ENCODERS}

# Scales of damaged blocks may be infinity or NaN; NumPy's warnings about them are not wanted.
_quiet = np.errstate(invalid="ignore", over="ignore")

FORMATS: dict[int, Format] = {
    kind.id: Format(
        kind,
        _quiet(_DECODERS[kind.name]),
        _quiet(_ENCODERS[kind.name]) if kind.name in _ENCODERS else None,
    )
    for kind in TENSOR_TYPES.values()
    if kind.name in _DECODERS
}
"""Every format that can be dequantized, by ggml id."""


def format_of(kind: Format | TensorType | int | str) -> Format:
    """Return the format of a tensor type, a ggml id, or a name in any case. Raises UnsupportedModel if unknown."""
    if isinstance(kind, Format):
        return kind
    if not isinstance(kind, TensorType):
        kind = tensor_type(kind)
    if kind.id not in FORMATS:
        known = ", ".join(f.name for f in FORMATS.values())
        raise UnsupportedModel(f"{kind.name} tensors cannot be dequantized: the formats that can are {known}")
    return FORMATS[kind.id]


def decode(
    data: npt.ArrayLike,
    kind: Format | TensorType | int | str,
    shape: Sequence[int] | None = None,
    *,
    chunk: int = CHUNK,
) -> F32:
    """Dequantize tensor bytes; return a new float32 array. About `chunk` values are decoded at a time.

    The last axis of `data` consists of whole blocks; the result has its leading axes, or `shape` if given. Raises
    RequestError if the sizes do not match.
    """
    form = format_of(kind)
    source = np.ascontiguousarray(data)
    if source.dtype != np.uint8:
        raise RequestError(f"data is {source.dtype}, not uint8: pass the stored bytes", param="data")
    width = source.shape[-1]
    if width % form.nbytes:
        raise RequestError(
            f"{width} bytes are not whole {form} blocks of {form.nbytes}: pass rows of whole blocks",
            param="data",
        )
    result = np.empty((*source.shape[:-1], width // form.nbytes * form.block), np.float32)
    if shape is not None and prod(shape) != result.size:
        raise RequestError(
            f"the data holds {result.size} {form} values, but shape {tuple(shape)} asks for {prod(shape)}",
            param="shape",
        )
    blocks, values = source.reshape(-1, form.nbytes), result.reshape(-1, form.block)
    for part in _parts(len(blocks), max(1, chunk // form.block)):
        values[part] = form.decode(blocks[part])
    return result if shape is None else result.reshape(shape)


def encode(values: npt.ArrayLike, kind: Format | TensorType | int | str, *, chunk: int = CHUNK) -> U8:
    """Quantize numbers; return tensor bytes: [..., n * block] → uint8 [..., n * nbytes].

    Numbers are rounded to float32 first; about `chunk` are encoded at a time. Raises UnsupportedModel for a format
    that can only be read; block formats raise RequestError for NaN, infinity and what a float16 scale cannot hold.
    """
    form = format_of(kind)
    if form.encode is None:
        able = ", ".join(f.name for f in FORMATS.values() if f.encode)
        raise UnsupportedModel(f"{form} can be read but not written: the formats that can be written are {able}")
    source = np.ascontiguousarray(values)
    width = source.shape[-1]
    if width % form.block:
        raise RequestError(
            f"rows of {width} values do not divide into {form} blocks of {form.block}: choose another format",
            param="values",
        )
    result = np.empty((*source.shape[:-1], width // form.block * form.nbytes), np.uint8)
    blocks, numbers = result.reshape(-1, form.nbytes), source.reshape(-1, form.block)
    for part in _parts(len(blocks), max(1, chunk // form.block)):
        with np.errstate(over="ignore"):
            rounded = numbers[part].astype(np.float32, copy=False)
        blocks[part] = form.encode(rounded)
    return result


def _parts(count: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, count, step)]
