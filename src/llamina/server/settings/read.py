"""Tables of a file as the values of a struct."""

from collections.abc import Callable
from typing import Any, get_origin

import msgspec

from llamina.server.settings.mistakes import Mistake, unknown
from llamina.server.settings.table import settings, struct_in, struct_of_table

Where = Callable[[tuple[str, ...]], str]


def read_table(
    table: dict[str, Any], struct: type[msgspec.Struct], where: Where, mistakes: list[Mistake], at: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What a table gives for the fields of a struct. What is wrong goes to the mistakes and is left out."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    leaves = {setting.path[0]: setting for setting in settings(struct) if len(setting.path) == 1}
    given: dict[str, Any] = {}
    for name, value in table.items():
        path = (*at, name)
        if name not in fields:
            mistakes.append(Mistake(where(path), unknown(".".join(path), (".".join((*at, f)) for f in fields))))
        elif name in leaves:
            try:
                given[name] = leaves[name].read(value)
            except ValueError as error:
                mistakes.append(Mistake(where(path), f"{'.'.join(path)} is {value!r}: {error}"))
        elif (inner := struct_in(fields[name])) is not None:
            given[name] = _read_struct(value, inner, where, mistakes, path)
        else:
            given[name] = _read_several(value, fields[name], where, mistakes, path)
    return given


def _read_struct(
    value: Any, struct: type[msgspec.Struct], where: Where, mistakes: list[Mistake], path: tuple[str, ...]
) -> dict[str, Any]:
    if isinstance(value, dict):
        return read_table(value, struct, where, mistakes, path)
    mistakes.append(Mistake(where(path), f"{'.'.join(path)} is {value!r}: must be a table"))
    return {}


def _read_several(
    value: Any, kind: Any, where: Where, mistakes: list[Mistake], path: tuple[str, ...]
) -> dict[str, Any] | list[Any]:
    """Tables by name, or a list of them."""
    struct = struct_of_table(kind)
    assert struct is not None
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _read_struct(inner, struct, where, mistakes, (*path, name)) for name, inner in value.items()}
    if get_origin(kind) is list and isinstance(value, list):
        return [_read_struct(inner, struct, where, mistakes, (*path, str(at))) for at, inner in enumerate(value)]
    mistakes.append(Mistake(where(path), f"{'.'.join(path)} is {value!r}: must be tables"))
    return {} if get_origin(kind) is dict else []
