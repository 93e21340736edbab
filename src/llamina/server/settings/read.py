"""Tables of a file as the values of a struct."""

from collections.abc import Callable
from typing import Any

import msgspec

from llamina.server.settings.mistakes import Mistake, unknown
from llamina.server.settings.table import is_struct, settings, struct_of_table

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
        elif not isinstance(value, dict):
            mistakes.append(Mistake(where(path), f"{'.'.join(path)} is {value!r}: a table is expected"))
        elif is_struct(fields[name]):
            given[name] = read_table(value, fields[name], where, mistakes, path)
        else:
            given[name] = _read_named(value, fields[name], where, mistakes, path)
    return given


def _read_named(
    table: dict[str, Any], kind: Any, where: Where, mistakes: list[Mistake], at: tuple[str, ...]
) -> dict[str, Any]:
    """A table of tables by name."""
    struct = struct_of_table(kind)
    assert struct is not None
    given: dict[str, Any] = {}
    for name, value in table.items():
        path = (*at, name)
        if not isinstance(value, dict):
            mistakes.append(Mistake(where(path), f"{'.'.join(path)} is {value!r}: a table is expected"))
        else:
            given[name] = read_table(value, struct, where, mistakes, path)
    return given
