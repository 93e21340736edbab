"""Writes a quantized copy of a GGUF file, tensor by tensor."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llamina.backends.encode import Bytes, Encoder, Job, prepare
from llamina.errors import ModelFileError, RequestError
from llamina.gguf import GGUF, Kind, Tensor, TensorType, ValueType, open_model, write
from llamina.gguf.writer import Progress, Source, check_output
from llamina.quantization.imatrix import Imatrix
from llamina.quantization.tensors import role_of
from llamina.quantization.types import FILE_TYPES, Facts, Options, file_type, fitting, needs_importances, wanted_types

QUANTIZATION_VERSION = 2
_NUMBER = Kind(ValueType.UINT32)


@dataclass(frozen=True, slots=True)
class Change:
    """A tensor of the file: its type before and after, and the one that was wanted if its rows do not fit that."""

    name: str
    shape: tuple[int, ...]
    before: TensorType
    after: TensorType
    needs_imatrix: bool = False
    wanted: TensorType | None = None

    @property
    def nbytes(self) -> int:
        return self.after.size(self.shape)


@dataclass(frozen=True, slots=True)
class Quantized:
    """The result: the new file, and the sizes of the tensors before and after in bytes."""

    path: Path
    type: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def before(self) -> int:
        return sum(change.before.size(change.shape) for change in self.changes)

    @property
    def after(self) -> int:
        return sum(change.nbytes for change in self.changes)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.after / sum(prod(change.shape) for change in self.changes)


def plan(
    source: str | os.PathLike[str] | GGUF,
    type: str,
    *,
    imatrix: Imatrix | None = None,
    options: Options | None = None,
    requantize: bool = False,
) -> tuple[Change, ...]:
    """What `quantize` would do to each tensor, in the order of the new file; it writes nothing.

    Raises as `quantize` does, but for tensors that need importances: of these it tells.
    """
    with opened(source) as file:
        return _changes(file, file_type(type), imatrix, options, requantize)


def opened(source: str | os.PathLike[str] | GGUF) -> AbstractContextManager[GGUF]:
    """The model of a file, for a `with` block; one that is open already stays so."""
    return nullcontext(source) if isinstance(source, GGUF) else open_model(source)


def quantize(
    source: str | os.PathLike[str] | GGUF,
    out: str | os.PathLike[str],
    type: str,
    *,
    imatrix: Imatrix | str | os.PathLike[str] | None = None,
    options: Options | None = None,
    requantize: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    compiling: Progress | None = None,
) -> Quantized:
    """Write the model `source`, a file or one that is open, to the file `out`, quantized to a type such as Q4_K_M.

    `source` is a file, or the contents of one, which may be computed as they are read. `imatrix` gives importances to
    columns; some types need it. Tensors that are quantized already are refused unless `requantize` is set. The file
    appears when it is complete; a part of one tensor is in memory at a time. `progress` is told (name, bytes done,
    bytes in all). Raises ModelNotFound, ModelFileError, UnsupportedModel or RequestError.
    """
    mix, path = file_type(type), Path(out)
    known = imatrix if isinstance(imatrix, Imatrix) or imatrix is None else Imatrix.read(imatrix)
    check_output(path, overwrite, source.source if isinstance(source, GGUF) else source)
    with opened(source) as file:
        changes = _changes(file, mix, known, options, requantize)
        _check_importances(changes, known)
        kinds = {(c.after, importances_of(known, c.name, c.shape) is not None) for c in changes if c.before != c.after}
        prepare(sorted(kinds, key=lambda pair: pair[0].id), compiling)
        metadata, types = _metadata(file, mix, known)
        with Encoder(threads or os.cpu_count() or 1) as encoder:
            tensors: list[Source] = [
                file.tensors[c.name]
                if c.before == c.after
                else (c.name, c.shape, c.after, partial(_parts, file.tensors[c.name], c, known, encoder))
                for c in changes
            ]
            write(path, metadata, tensors, metadata_types=types, progress=progress)
    return Quantized(path, mix, changes, notes_on(changes, known))


def _changes(
    file: GGUF, mix: str, imatrix: Imatrix | None, options: Options | None, requantize: bool
) -> tuple[Change, ...]:
    shapes = {tensor.name: tensor.shape for tensor in file.tensors.values()}
    wanted = wanted_types(shapes, mix, Facts.of(file.metadata, imatrix is not None), options)
    changes = []
    for name, kind in wanted.items():
        tensor = file.tensors[name]
        after = tensor.type if kind is None else fitting(kind, name, tensor.shape)
        if after != tensor.type and not requantize:
            check_unquantized(tensor)
        few = after != tensor.type and needs_importances(name, after, mix)
        changes.append(Change(name, tensor.shape, tensor.type, after, few, None if kind == after else kind))
    return tuple(changes)


def check_unquantized(tensor: Tensor) -> None:
    """Raise RequestError for a tensor that is quantized already: quantized again, it is worse than it looks."""
    if tensor.type.block > 1:
        raise RequestError(
            f"{tensor.name} is {tensor.type.name} already, and quantizing again loses more: start from an F16, BF16 or "
            "F32 file, or allow requantizing",
            "requantize",
        )


def _check_importances(changes: tuple[Change, ...], imatrix: Imatrix | None) -> None:
    """Raise RequestError for what would be garbage without importances."""
    for change in changes:
        if change.needs_imatrix and importances_of(imatrix, change.name, change.shape) is None:
            lacks = "has none of it" if imatrix else "was not given"
            raise RequestError(
                f"{change.name} in {change.after.name} needs an importance matrix, which {lacks}: give one, or choose "
                "a larger type",
                "imatrix",
            )


def importances_of(imatrix: Imatrix | None, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32] | None:
    """Importances [experts, columns] of a tensor, or None. Raises ModelFileError if they are of another shape."""
    found = imatrix.importances(name) if imatrix else None
    if found is None:
        return None
    experts = shape[0] if len(shape) > 2 else 1
    if found.size != experts * shape[-1]:
        if role_of(name) == "embedding":
            return None
        raise ModelFileError(
            f"{name} has {experts} x {shape[-1]} columns, the importance matrix {found.size}: it is of another model"
        )
    return found.reshape(experts, -1)


def _parts(tensor: Tensor, change: Change, imatrix: Imatrix | None, encoder: Encoder) -> Iterator[Bytes]:
    """Yield the tensor's new bytes."""
    importances = importances_of(imatrix, change.name, change.shape)
    rows = tensor.data.reshape(prod(change.shape[:-1]), -1)
    groups = [rows] if importances is None else np.split(rows, len(importances))
    try:
        for number, group in enumerate(groups):
            weights = None if importances is None else importances[number]
            yield from encoder.parts(Job(group, change.before, change.after, weights))
    except RequestError as error:
        raise RequestError(f"{change.name}: {error}", error.param) from error


def _metadata(file: GGUF, mix: str, imatrix: Imatrix | None) -> tuple[dict[str, object], dict[str, Kind]]:
    metadata: dict[str, object] = dict(file.metadata)
    metadata["general.quantization_version"] = QUANTIZATION_VERSION
    metadata["general.file_type"] = FILE_TYPES[mix][0]
    types = {**file.metadata_types, "general.quantization_version": _NUMBER, "general.file_type": _NUMBER}
    if imatrix is not None:
        if imatrix.path is not None:
            metadata["quantize.imatrix.file"] = str(imatrix.path)
        if imatrix.datasets:
            metadata["quantize.imatrix.dataset"] = imatrix.datasets[0]
        metadata["quantize.imatrix.entries_count"] = len(imatrix.sums)
        types["quantize.imatrix.entries_count"] = _NUMBER
        if imatrix.chunks > 0:
            metadata["quantize.imatrix.chunks_count"] = imatrix.chunks
            types["quantize.imatrix.chunks_count"] = _NUMBER
    return metadata, types


def notes_on(changes: tuple[Change, ...], imatrix: Imatrix | None) -> tuple[str, ...]:
    """Remarks for the user: rows that did not fit, matrices without importances."""
    notes = []
    for wanted, after in dict.fromkeys((c.wanted, c.after) for c in changes if c.wanted is not None):
        odd = [c.name for c in changes if (c.wanted, c.after) == (wanted, after)]
        notes.append(
            f"{len(odd)} tensors are {after.name}: their rows do not divide into blocks of {wanted.name} ({odd[0]})"
        )
    if imatrix is not None:
        changed = [c for c in changes if c.before != c.after and role_of(c.name) not in ("output", "embedding")]
        blind = [c for c in changed if importances_of(imatrix, c.name, c.shape) is None]
        if blind:
            notes.append(f"the importance matrix has nothing of {len(blind)} tensors ({blind[0].name})")
    return tuple(notes)
