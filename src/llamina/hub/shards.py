"""Which files belong together: models split as NAME-00001-of-0000N.gguf, and encoders of pictures beside models."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePath

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL | re.IGNORECASE)


def shard_names(name: str) -> list[str]:
    """All files of the model that `name` is a file of; a folder in front stays."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return [name]
    count = match["count"]
    return [f"{match['stem']}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]


def shards_of(path: Path) -> list[Path]:
    """The files of a model that are there."""
    return [found for name in shard_names(path.name) if (found := path.with_name(name)).exists()]


def is_complete(path: Path) -> bool:
    """Whether all files of a model are there."""
    return all(path.with_name(name).exists() for name in shard_names(path.name))


def is_encoder(name: str) -> bool:
    """Whether a file is the encoder of pictures or sound that belongs to a model."""
    return "mmproj" in PurePath(name).name.lower()


def first_shards(paths: Iterable[Path]) -> list[Path]:
    """Whole files, and of split models the first shard."""
    return sorted(path for path in paths if is_first(path.name))


def is_first(name: str) -> bool:
    match = _SHARD.fullmatch(PurePath(name).name)
    return match is None or int(match["number"]) == 1


def stem(name: str) -> str:
    """A file's name without folder, ending and shard number."""
    name = PurePath(name).name
    match = _SHARD.fullmatch(name)
    return match["stem"] if match else name.removesuffix(".gguf")
