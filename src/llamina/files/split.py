"""One GGUF file ⇄ shards NAME-00001-of-0000N.gguf, as llama-gguf-split makes them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llamina.errors import RequestError
from llamina.gguf import GGUF, open_model, write, write_shards
from llamina.gguf.shards import group, shard_paths
from llamina.gguf.tensor import Tensor
from llamina.gguf.writer import Progress, Source, check_output
from llamina.hub.shards import shards_of

MAX_TENSORS = 128  # llama-gguf-split's default


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of a split model: how many tensors it has, and the bytes of their data."""

    path: Path
    tensors: int
    bytes: int


def plan_split(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    max_tensors: int | None = None,
    max_bytes: int | None = None,
    bare_first: bool = False,
) -> list[Shard]:
    """What `split` would write. Raises as it does; writes nothing."""
    with open_model(source) as file:
        limits = _limits(max_tensors, max_bytes)
        groups = group(file.tensors.values(), **limits, bare_first=bare_first)
        return _shards(shard_paths(_name(source, out), len(groups)), groups)


def split(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    max_tensors: int | None = None,
    max_bytes: int | None = None,
    bare_first: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Shard]:
    """Write the model `source` as shards OUT-00001-of-0000N.gguf; `out` is by default the source without `.gguf`.

    A shard has at most `max_tensors` tensors (128, unless `max_bytes` is given), or `max_bytes` bytes of data; a tensor
    that is larger has one of its own. With `bare_first` the first shard has the metadata alone. They appear when all
    are complete. Raises ModelNotFound, ModelFileError or RequestError.
    """
    limits = _limits(max_tensors, max_bytes)
    name = _name(source, out)
    with open_model(source) as file:
        groups = group(file.tensors.values(), **limits, bare_first=bare_first)
        planned = _shards(shard_paths(name, len(groups)), groups)
        for shard in planned:
            check_output(shard.path, overwrite, *shards_of(Path(source)))
        write_shards(
            name,
            file.metadata,
            file.tensors.values(),
            **limits,
            bare_first=bare_first,
            metadata_types=file.metadata_types,
            progress=progress,
        )
    return planned


def merge(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    delete: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the shards that `source` is one of as the file `out`, which appears when it is complete, and return it.

    With `delete` the shards are deleted afterwards. Raises ModelNotFound, ModelFileError or RequestError.
    """
    path, shards = Path(out), shards_of(Path(source))
    check_output(path, overwrite, *shards)
    with GGUF.open(source) as first:
        if not isinstance(count := first.metadata.get("split.count", 0), int) or count < 1:
            raise RequestError(f"{source} is not one of several shards: there is nothing to merge", "source")
    with open_model(source) as file:
        metadata = {key: value for key, value in file.metadata.items() if not key.startswith("split.")}
        write(path, metadata, file.tensors.values(), metadata_types=file.metadata_types, progress=progress)
    for shard in shards if delete else ():
        shard.unlink()
    return path


def _limits(max_tensors: int | None, max_bytes: int | None) -> dict[str, int | None]:
    if max_tensors is None and max_bytes is None:
        max_tensors = MAX_TENSORS
    return {"max_tensors": max_tensors, "max_bytes": max_bytes}


def _name(source: str | os.PathLike[str], out: str | os.PathLike[str] | None) -> Path:
    return Path(source if out is None else out)


def _shards(paths: Sequence[Path], groups: Sequence[Sequence[Source]]) -> list[Shard]:
    sizes = [sum(tensor.nbytes for tensor in part if isinstance(tensor, Tensor)) for part in groups]
    return [Shard(path, len(part), size) for path, part, size in zip(paths, groups, sizes, strict=True)]
