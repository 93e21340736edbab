"""What differs between two GGUF files: metadata, names, shapes and types of tensors, and the error between values."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, lcm, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.gguf import GGUF, Tensor
from llamina.gguf.types import Value
from llamina.gguf.writer import Progress
from llamina.quant import FORMATS, decode

CHUNK = 1 << 20  # values that are compared together


@dataclass(frozen=True, slots=True)
class TensorError:
    """How far a tensor of B is from that of A: root mean square, the same relative to A's, largest, cosine.

    Of tensors whose sizes differ there is none. Where values of both are NaN or infinite, the numbers are NaN.
    """

    name: str
    rmse: float
    relative: float
    max: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, A first. `data` are the tensors of equal type whose bytes differ; None if they were not read."""

    metadata_removed: tuple[str, ...]
    metadata_added: tuple[str, ...]
    metadata_changed: tuple[str, ...]
    tensors_removed: tuple[str, ...]
    tensors_added: tuple[str, ...]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    types: dict[str, tuple[str, str]]
    data: tuple[str, ...] | None = None
    errors: tuple[TensorError, ...] = field(default=())

    def __bool__(self) -> bool:
        """Whether anything differs."""
        keys = self.metadata_removed or self.metadata_added or self.metadata_changed
        return bool(keys or self.tensors_removed or self.tensors_added or self.shapes or self.types or self.data)


def compare(
    a: GGUF, b: GGUF, *, data: bool = True, errors: bool = False, progress: Progress | None = None
) -> Difference:
    """Compare two open models. Unless `data` is off, the bytes of tensors of equal type and shape are compared.

    With `errors` every tensor that both have in one shape is dequantized, and its error measured where bytes differ.
    Types without a decoder are left out of it. `progress` is told (name, bytes of A done, bytes in all).
    """
    common = [name for name in a.tensors if name in b.tensors]
    shapes = {n: (a.tensors[n].shape, b.tensors[n].shape) for n in common if a.tensors[n].shape != b.tensors[n].shape}
    types = {
        n: (a.tensors[n].type.name, b.tensors[n].type.name) for n in common if a.tensors[n].type != b.tensors[n].type
    }
    unequal: list[str] = []
    found: list[TensorError] = []
    read = [a.tensors[name] for name in common if name not in shapes] if data or errors else []
    total, done = sum(tensor.nbytes for tensor in read), 0
    for tensor in read:
        other = b.tensors[tensor.name]
        same = tensor.type == other.type and _same_bytes(tensor, other)
        if not same and tensor.type == other.type:
            unequal.append(tensor.name)
        if not same and errors and tensor.type.id in FORMATS and other.type.id in FORMATS:
            found.append(_error(tensor, other))
        done += tensor.nbytes
        if progress is not None:
            progress("all tensors", done, total)
    return Difference(
        metadata_removed=_without(a.metadata, b.metadata),
        metadata_added=_without(b.metadata, a.metadata),
        metadata_changed=tuple(key for key in a.metadata if key in b.metadata and not _equal(a, b, key)),
        tensors_removed=_without(a.tensors, b.tensors),
        tensors_added=_without(b.tensors, a.tensors),
        shapes=shapes,
        types=types,
        data=tuple(unequal) if data or errors else None,
        errors=tuple(found),
    )


def _without(some: Any, others: Any) -> tuple[str, ...]:
    return tuple(name for name in some if name not in others)


def _equal(a: GGUF, b: GGUF, key: str) -> bool:
    return a.metadata_types[key] == b.metadata_types[key] and _same(a.metadata[key], b.metadata[key])


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))  # NaN is NaN here


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    mine, theirs, step = one.data, other.data, CHUNK << 2
    return all(np.array_equal(mine[at : at + step], theirs[at : at + step]) for at in range(0, len(mine), step))


def _error(one: Tensor, other: Tensor) -> TensorError:
    squares = own = theirs = product = 0.0
    largest = 0.0
    with np.errstate(all="ignore"):
        for x, y in zip(_parts(one, other), _parts(other, one), strict=True):
            apart = y - x
            squares += float(apart @ apart)
            own, theirs, product = own + float(x @ x), theirs + float(y @ y), product + float(x @ y)
            largest = float(np.maximum(largest, np.abs(apart).max()))  # which keeps NaN
    count = int(np.prod(one.shape))
    relative = sqrt(squares / own) if own else (inf if squares else 0.0)
    cosine = product / sqrt(own * theirs) if own and theirs else float(own == theirs)
    return TensorError(one.name, sqrt(squares / count), relative, largest, cosine)


def _parts(tensor: Tensor, other: Tensor) -> Iterator[npt.NDArray[np.float64]]:
    """Yield the values, as many at a time as both formats have in whole blocks."""
    common = lcm(tensor.type.block, other.type.block)
    values = max(CHUNK // common, 1) * common
    step, data = values // tensor.type.block * tensor.type.nbytes, tensor.data
    for at in range(0, len(data), step):
        yield decode(data[at : at + step], tensor.type).astype(np.float64)
