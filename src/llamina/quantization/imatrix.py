"""Importance matrices: mean squares of the activations that each column of a matrix is multiplied with.

llama.cpp's GGUF files hold, for a tensor NAME, the sums of squares `NAME.in_sum2` [experts, columns] and the numbers of
tokens `NAME.counts` [experts, 1]. Its older files (`.dat`) are read as well.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.errors import ModelFileError, ModelNotFound
from llamina.gguf import GGUF, Kind, ValueType, tensor_type, write
from llamina.gguf.writer import replacing

Floats: TypeAlias = npt.NDArray[np.float32]
CHUNK = 512  # tokens of a chunk, where a file does not say
_SUMS, _COUNTS = ".in_sum2", ".counts"
_KINDS = {
    "imatrix.datasets": Kind(ValueType.ARRAY, ValueType.STRING),
    "imatrix.chunk_count": Kind(ValueType.UINT32),
    "imatrix.chunk_size": Kind(ValueType.UINT32),
}


@dataclass(frozen=True, slots=True)
class Imatrix:
    """Sums of squares [experts, columns] and counts [experts] by tensor, from texts in `chunks` windows."""

    sums: Mapping[str, Floats]
    counts: Mapping[str, Floats]
    datasets: Sequence[str] = ()
    chunks: int = 0
    chunk_size: int = 0
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Imatrix":
        """Read a file of either kind. Raises ModelNotFound or ModelFileError."""
        where = Path(path)
        try:
            with open(where, "rb") as file:
                magic = file.read(4)
        except FileNotFoundError:
            raise ModelNotFound(f"{where}: no such file: check the path") from None
        return _read_gguf(where) if magic == b"GGUF" else _read_dat(where)

    def save(self, path: str | os.PathLike[str], *, legacy: bool = False) -> None:
        """Write a GGUF file as llama-imatrix does, or one of the older kind; it appears when it is complete."""
        if legacy:
            return _write_dat(Path(path), self)
        metadata: dict[str, object] = {
            "general.type": "imatrix",
            "imatrix.datasets": list(self.datasets),
            "imatrix.chunk_count": self.chunks,
            "imatrix.chunk_size": self.chunk_size,
        }
        kind = tensor_type("F32")
        tensors = []
        for name in sorted(self.sums):
            sums, counts = self.sums[name], self.counts[name].reshape(-1, 1)
            tensors += [(name + _SUMS, sums.shape, kind, sums), (name + _COUNTS, counts.shape, kind, counts)]
        write(path, metadata, tensors, metadata_types=_KINDS)

    def plus(self, other: "Imatrix") -> "Imatrix":
        """Both added up, the texts of this one first. Raises ModelFileError if a matrix has other columns there."""
        size = self.chunk_size or other.chunk_size or CHUNK
        mine, more = self._counted(size), other._counted(size)
        sums, counts = dict(mine.sums), dict(mine.counts)
        for name, theirs in more.sums.items():
            if name not in sums:
                sums[name], counts[name] = theirs, more.counts[name]
            elif sums[name].size != theirs.size:
                raise ModelFileError(
                    f"{name} has {theirs.size} columns in {other.path}, and {sums[name].size} in the others: these are "
                    "importance matrices of different models"
                )
            else:
                experts = max(len(sums[name]), len(theirs))  # older files have one count for all
                sums[name] = sums[name].reshape(experts, -1) + theirs.reshape(experts, -1)
                counts[name] = np.broadcast_to(counts[name], experts) + np.broadcast_to(more.counts[name], experts)
        return Imatrix(sums, counts, [*self.datasets, *other.datasets], self.chunks + other.chunks, size)

    def _counted(self, size: int) -> "Imatrix":
        """With counts of tokens; older files count chunks."""
        if self.chunk_size:
            return self
        times = np.float32(size)
        sums, counts = ({name: x * times for name, x in part.items()} for part in (self.sums, self.counts))
        return replace(self, sums=sums, counts=counts, chunk_size=size)

    def importances(self, name: str) -> Floats | None:
        """Mean squares [experts, columns]; ones for an expert that saw no token. None for an unknown tensor."""
        if name not in self.sums:
            return None
        counts = self.counts[name][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.ascontiguousarray(np.where(counts > 0, self.sums[name] / counts, 1), np.float32)


def _read_gguf(path: Path) -> Imatrix:
    with GGUF.open(path) as file:
        known = file.metadata
        missing = [key for key in _KINDS if key not in known]
        if missing:
            raise ModelFileError(f"{path} has no {missing[0]}: give a file that `imatrix` wrote")
        arrays = {name: _floats(path, tensor) for name, tensor in file.tensors.items()}
    names = [name.removesuffix(_SUMS) for name in arrays if name.endswith(_SUMS)]
    for name in names:
        if name + _COUNTS not in arrays:
            raise ModelFileError(f"{path} has {name}{_SUMS} but no {name}{_COUNTS}: make the file again")
    counts = {name: np.rint(arrays[name + _COUNTS].reshape(-1)) for name in names}
    sums = {name: arrays[name + _SUMS].reshape(len(counts[name]), -1) for name in names}
    datasets: Any = known["imatrix.datasets"]
    chunks, size = (int(str(known[f"imatrix.chunk_{key}"])) for key in ("count", "size"))
    return _checked(Imatrix(sums, counts, [str(one) for one in datasets], chunks, size, path))


def _floats(path: Path, tensor: Any) -> Floats:
    if tensor.type.name != "F32":
        raise ModelFileError(f"{path}: {tensor.name} is {tensor.type.name}, not F32: make the file again")
    values: Floats = tensor.data.view("<f4").astype(np.float32).reshape(tensor.shape)
    return values


def _read_dat(path: Path) -> Imatrix:
    """int32 entries; each: length, name, calls, columns, float32 sums · calls; then calls, length, dataset."""
    data = path.read_bytes()
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        if count < 0 or at + count > len(data):
            raise ModelFileError(f"{path} is no importance matrix, or ends too early: get it again")
        at += count
        return data[at - count : at]

    def number() -> int:
        return int(struct.unpack("<i", take(4))[0])

    sums, counts = {}, {}
    for _ in range(number()):
        name = take(number()).decode(errors="replace")
        calls, columns = number(), number()
        sums[name] = np.frombuffer(take(4 * columns), "<f4").astype(np.float32)[None]
        counts[name] = np.array([max(calls, 1)], np.float32)
    chunks = number() if at < len(data) else 0
    datasets = [take(number()).decode(errors="replace")] if at < len(data) else []
    return _checked(Imatrix(sums, counts, datasets, chunks, 0, path))


def _write_dat(path: Path, made: Imatrix) -> None:
    """What `_read_dat` reads; `calls` are chunks, and experts that saw no token have importances of 1."""
    size = made.chunk_size or 1
    data = [struct.pack("<i", len(made.sums))]
    for name in sorted(made.sums):
        importances, key = made.importances(name), name.encode()
        calls = max(1, -(-int(made.counts[name].max()) // size))
        assert importances is not None
        data += [struct.pack("<i", len(key)), key, struct.pack("<ii", calls, importances.size)]
        data.append((importances * np.float32(calls)).astype("<f4").tobytes())
    dataset = (made.datasets[-1] if made.datasets else "").encode()
    data.append(struct.pack("<ii", made.chunks, len(dataset)) + dataset)
    with replacing(path) as file:
        file.write(b"".join(data))


def _checked(found: Imatrix) -> Imatrix:
    if not found.sums:
        raise ModelFileError(f"{found.path} holds no tensors: make it again")
    for name, sums in found.sums.items():
        if not np.isfinite(sums).all():
            raise ModelFileError(f"{found.path}: {name} holds NaN or infinity: make it again")
    return found
