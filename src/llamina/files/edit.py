"""Metadata of a GGUF file: set, removed, renamed. Tensors and all other values are copied as they are."""

import json
import os
import re
import secrets
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from llamina.errors import RequestError
from llamina.gguf import GGUF, Kind, ValueType, kind_of, write
from llamina.gguf.types import NUMBERS
from llamina.gguf.writer import Progress, check_output

_ARRAY = re.compile(r"(?:array\[)?(?P<element>\w+?)(?:\]|\[\])", re.IGNORECASE)
_SHORT = {"str": "string", "float": "float32", "u": "uint", "i": "int", "f": "float"}


def edit(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    set: Mapping[str, object] | None = None,
    types: Mapping[str, Kind] | None = None,
    remove: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the file `source` with other metadata to `out`, or over itself if `in_place` is set; return the new path.

    `set` gives values to keys, `types` the types of keys, `remove` takes keys out, and `rename` gives new names to old
    ones. A key keeps its type unless `types` has one; a new one gets that of `kind_of`. It is this file that is edited:
    of a split model, the first shard has the metadata. The new file appears when it is complete. Raises ModelNotFound,
    ModelFileError, or RequestError for keys that are not there and values that their types cannot hold.
    """
    if in_place == (out is not None):
        raise RequestError("give either a file to write or in_place", "out")
    path = Path(source if out is None else out)
    if not in_place:
        check_output(path, overwrite, source)
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part") if in_place else path
    try:
        with GGUF.open(source) as file:
            metadata, kinds = _edited(file, set or {}, types or {}, remove, rename or {})
            write(
                written,
                metadata,
                file.tensors.values(),
                metadata_types=kinds,
                version=file.version,
                byteorder=file.byteorder,
                progress=progress,
            )
        if in_place:
            os.replace(written, path)  # when the old file is closed, which Windows requires
    finally:
        if in_place:
            written.unlink(missing_ok=True)
    return path


def _edited(
    file: GGUF,
    given: Mapping[str, object],
    types: Mapping[str, Kind],
    remove: Collection[str],
    rename: Mapping[str, str],
) -> tuple[dict[str, object], dict[str, Kind]]:
    for key in (*remove, *rename):
        _check_known(file, key)
    if twice := {*remove} & {*rename} | {*remove, *rename, *rename.values()} & {*given}:
        raise RequestError(f"{min(twice)} is edited twice: name it once", "set")
    metadata: dict[str, object] = {}
    kinds: dict[str, Kind] = {}
    for key, value in file.metadata.items():
        if key not in remove:
            name = rename.get(key, key)
            if name in metadata or (name != key and name in file.metadata and name not in {*remove, *rename}):
                raise RequestError(f"{key} cannot be renamed to {name}, which is there: remove that one", "rename")
            metadata[name], kinds[name] = value, file.metadata_types[key]
    for key, new in given.items():
        kinds[key] = types.get(key) or kinds.get(key) or kind_of(key, new)
        metadata[key] = new
    for key, kind in types.items():
        if key not in metadata:
            raise RequestError(f"{key} gets a type and has no value: set it too", "types")
        kinds[key] = kind
    return metadata, kinds


def _check_known(file: GGUF, key: str) -> None:
    if key not in file.metadata:
        near = get_close_matches(key, file.metadata, 1)
        meant = f": did you mean {near[0]}?" if near else f": it has {len(file.metadata)} others"
        raise RequestError(f"{file.source} has no metadata key {key}{meant}", "remove")


def kind_named(name: str) -> Kind:
    """The type of that name in any case: uint8 … int64 (u8 … i64), float32, bool, string; of arrays, uint32[] …

    Raises RequestError if there is none.
    """
    match = _ARRAY.fullmatch(name.strip())
    plain = (match["element"] if match else name.strip()).lower()
    plain = _SHORT.get(plain, plain)
    if short := re.fullmatch(r"([uif])(\d+)", plain):
        plain = _SHORT[short[1]] + short[2]
    element = ValueType.__members__.get(plain.upper())
    if element in (None, ValueType.ARRAY):
        known = ", ".join(kind.name.lower() for kind in ValueType if kind is not ValueType.ARRAY)
        raise RequestError(f"{name!r} is no type of metadata: must be one of {known}, with [] behind it for arrays")
    return Kind(ValueType.ARRAY, element) if match else Kind(element)


def parse_value(key: str, text: str, kind: Kind | None) -> Any:
    """The value that a text stands for, by its type; arrays are written as JSON. Raises RequestError.

    Without a type, what is a number, true, false or an array in JSON is that, and everything else is a string.
    """
    if kind is None:
        value = _json(text)
        return value if isinstance(value, bool | int | float | list) else text
    if kind.type is ValueType.STRING:
        return text
    value = _json(text)
    if kind.type is ValueType.ARRAY:
        fits = isinstance(value, list)
    elif kind.type is ValueType.BOOL:
        fits = isinstance(value, bool)
    else:
        whole = NUMBERS[kind.type].kind in "iu"
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits:
        raise RequestError(f"{key} is {kind}, and {text!r} is none: give another value, or its type too", "set")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
