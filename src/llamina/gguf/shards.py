"""Opens and writes models that are split into shards NAME-00001-of-0000N.gguf."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from llamina.errors import ModelFileError, ModelNotFound, RequestError
from llamina.gguf.header import DEFAULT_ALIGNMENT
from llamina.gguf.reader import GGUF
from llamina.gguf.tensor import Tensor
from llamina.gguf.types import Kind, ValueType
from llamina.gguf.writer import Progress, Source, write

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_KINDS = {
    "split.no": Kind(ValueType.UINT16),
    "split.count": Kind(ValueType.UINT16),
    "split.tensors.count": Kind(ValueType.INT32),
}


def open_model(path: str | os.PathLike[str]) -> GGUF:
    """Open a model from one file, or from any of its shards. Raises ModelNotFound or ModelFileError.

    Shards are merged into one: the tensors of all, and the metadata of the first without the `split.` keys.
    """
    opened = GGUF.open(path)
    count = _number(opened, "split.count", 1)
    if count <= 1:
        return opened
    shards = [_shard(file, number, count) for number, file in enumerate(_siblings(Path(path), count))]
    first = shards[0]
    return replace(
        first,
        metadata={key: value for key, value in first.metadata.items() if key not in _KINDS},
        metadata_types={key: kind for key, kind in first.metadata_types.items() if key not in _KINDS},
        tensors=_merge(shards),
    )


def write_shards(
    path: str | os.PathLike[str],
    metadata: Mapping[str, object],
    tensors: Iterable[Source],
    *,
    max_tensors: int | None = None,
    max_bytes: int | None = None,
    bare_first: bool = False,
    metadata_types: Mapping[str, Kind] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write NAME[.gguf] as shards, and return their paths; they appear when all of them are complete.

    Raises as `group` does, which says how tensors are shared out.
    """
    groups = group(tensors, max_tensors=max_tensors, max_bytes=max_bytes, bare_first=bare_first)
    paths, count = shard_paths(path, len(groups)), sum(map(len, groups))
    kinds = {**(metadata_types or {}), **_KINDS}
    with TemporaryDirectory(prefix=f".{paths[0].stem}.", suffix=".part", dir=paths[0].parent) as staging:
        for number, (final, part) in enumerate(zip(paths, groups, strict=True)):
            # in llama-gguf-split's order, so that files are the same byte for byte
            split = {"split.no": number, "split.tensors.count": count, "split.count": len(groups)}
            pairs = {**{k: v for k, v in metadata.items() if k not in split}, **split} if number == 0 else split
            write(Path(staging) / f"{final.name}.part", pairs, part, metadata_types=kinds, progress=progress)
        for final in paths:
            os.replace(Path(staging) / f"{final.name}.part", final)
    return paths


def group(
    tensors: Iterable[Source], *, max_tensors: int | None = None, max_bytes: int | None = None, bare_first: bool = False
) -> list[list[Source]]:
    """Share tensors out as llama-gguf-split does: as many to a shard as one of the limits allows, at least one.

    `max_bytes` counts data and its padding, not metadata. With `bare_first` the first shard has metadata alone.
    Raises RequestError unless there is one limit, of 1 or more.
    """
    if (max_tensors is None) == (max_bytes is None):
        raise RequestError("give either max_tensors or max_bytes", "max_tensors")
    for name, limit in (("max_tensors", max_tensors), ("max_bytes", max_bytes)):
        if limit is not None and limit < 1:
            raise RequestError(f"{name} is {limit}: give 1 or more", name)
    groups: list[list[Source]] = [[], []] if bare_first else [[]]
    size = 0
    for source in tensors:
        added = -(-_nbytes(source) // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
        full = len(groups[-1]) == max_tensors if max_bytes is None else size + added > max_bytes
        if full and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += added
    return groups


def _nbytes(source: Source) -> int:
    return source.nbytes if isinstance(source, Tensor) else source[2].size(source[1])


def shard_paths(path: str | os.PathLike[str], count: int) -> list[Path]:
    """Return the paths of all shards of NAME[.gguf]."""
    stem = Path(path).with_name(Path(path).name.removesuffix(".gguf"))
    return [_shard_path(stem, number, count) for number in range(count)]


def _shard_path(stem: Path, number: int, count: int) -> Path:
    """Return the path of a shard; names count from one, the metadata from zero."""
    return stem.with_name(f"{stem.name}-{number + 1:05d}-of-{count:05d}.gguf")


def _siblings(path: Path, count: int) -> list[Path]:
    """Return the paths of all shards of the model that `path` belongs to. Raises if one is missing."""
    match = _NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise ModelFileError(
            f"{path}: this is one of {count} shards, and its name does not say so:"
            f" name them like NAME-00001-of-{count:05d}.gguf"
        )
    paths = [_shard_path(path.with_name(match["stem"]), number, count) for number in range(count)]
    for sibling in paths:
        if not sibling.exists():
            raise ModelNotFound(f"{sibling}: this shard is missing: download all {count} into one folder")
    return paths


def _shard(path: Path, number: int, count: int) -> GGUF:
    """Open a shard. Raises ModelFileError unless it is the one that its name says."""
    shard = GGUF.open(path)
    actual = _number(shard, "split.no", None), _number(shard, "split.count", None)
    if actual != (number, count):
        raise ModelFileError(
            f"{path}: split.no and split.count are {actual[0]} and {actual[1]}, expected {number} and {count}:"
            " the file was renamed or belongs to another model"
        )
    return shard


def _merge(shards: list[GGUF]) -> dict[str, Tensor]:
    """Return the tensors of all shards. Raises ModelFileError for duplicates and for a wrong number of them."""
    merged: dict[str, Tensor] = {}
    for shard in shards:
        for name, tensor in shard.tensors.items():
            if name in merged:
                raise ModelFileError(
                    f"{shard.source}: the tensor {name!r} is in another shard too: get the model again"
                )
            merged[name] = tensor
    expected = _number(shards[0], "split.tensors.count", len(merged))
    if expected != len(merged):
        raise ModelFileError(
            f"{shards[0].source}: split.tensors.count is {expected}, the shards hold {len(merged)} tensors:"
            " a shard belongs to another version of the model, get it again"
        )
    return merged


def _number(shard: GGUF, key: str, default: int | None) -> int:
    """Return an integer of the metadata. Raises ModelFileError if it is none."""
    value = shard.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        kind = shard.metadata_types.get(key, "missing")
        raise ModelFileError(f"{shard.source}: {key} is {kind}, not an integer: the file is damaged, get it again")
    return value
