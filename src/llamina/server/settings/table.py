"""The table of settings: one for each field of a struct, with its key, its flag and its environment variable."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from llamina.server import units
from llamina.server.config import Config

PREFIX = "LLAMINA_"
UNIONS = (Union, UnionType)


@dataclass(frozen=True)
class Setting:
    """A field that holds a value."""

    path: tuple[str, ...]  # in a file: tables, and the key in them
    type: Any
    default: Any
    about: str
    unit: str  # bytes, seconds or none

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def words(self) -> tuple[str, ...]:
        """What flags and variables are called by; those of models in general have no prefix."""
        return self.path[1:] if self.path[0] == "defaults" else self.path

    @property
    def flag(self) -> str:
        return "--" + "-".join(self.words).replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + "_".join(self.words).upper()

    @property
    def kind(self) -> Any:
        """bool, int, float, str, list or dict; a tuple of the values where only some may be."""
        found = [part for part in _parts(self.type) if part is not type(None)]
        return tuple(found) if isinstance(found[0], str) else found[0]

    @property
    def default_text(self) -> str:
        """The default as it is written in a file; nothing if it is found out at run time."""
        if self.default is None or self.default in ("", [], {}):
            return ""
        if self.unit == "bytes" and self.default and self.default % 1024 == 0:
            power = 2 if self.default % (1 << 20) == 0 else 1
            return f'"{self.default >> 10 * power}{" KM"[power]}iB"'
        return msgspec.json.encode(self.default).decode()

    def read(self, value: Any) -> Any:
        """A value of a file. Raises ValueError that says what is expected."""
        if self.unit and isinstance(value, str):
            value = units.size(value) if self.unit == "bytes" else units.duration(value)
        return _convert(value, self.type, strict=True)

    def read_text(self, text: str) -> Any:
        """The same of a flag or a variable: lists have commas, tables NAME=VALUE. Raises ValueError."""
        if self.unit:
            return self.read(text)
        if self.kind is list:
            return _convert([part.strip() for part in text.split(",") if part.strip()], self.type, strict=False)
        if self.kind is dict:
            return _convert(_pairs(text), self.type, strict=False)
        return _convert(text.lower() if self.kind is bool else text, self.type, strict=False)


def settings(struct: type[msgspec.Struct] = Config, path: tuple[str, ...] = (), whose: str = "") -> Iterator[Setting]:
    """Every setting of a struct and of the structs in it, but for those that there may be many of: the models.

    `whose` is what is said of the struct as a whole; it follows what is said of each field.
    """
    for field in msgspec.structs.fields(struct):
        if (inner := struct_in(field.type)) is not None:
            yield from settings(inner, (*path, field.name), _about(field.type))
        elif struct_of_table(field.type) is None:
            about = " ".join(filter(None, (_about(field.type), whose)))
            unit = next((part["unit"] for part in _extras(field.type) if "unit" in part), "")
            default = None if field.default is msgspec.NODEFAULT else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            yield Setting((*path, field.name), field.type, default, about, unit)


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that an annotation is, also if it may be None."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    parts = [part for part in get_args(kind) if part is not type(None)] if get_origin(kind) in UNIONS else [kind]
    found = parts[0] if len(parts) == 1 else None
    return found if isinstance(found, type) and issubclass(found, msgspec.Struct) else None


def struct_of_table(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that there may be many of: X of dict[str, X], whose tables have names, and of list[X]."""
    return struct_in(get_args(kind)[-1]) if get_origin(kind) in (dict, list) else None


def _about(kind: Any) -> str:
    metas = kind.__metadata__ if get_origin(kind) is Annotated else ()
    return next((meta.description for meta in metas if meta.description), "")


def _convert(value: Any, kind: Any, strict: bool) -> Any:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        text = str(error).replace("`", "")
        raise ValueError(text[0].lower() + text[1:]) from None


def _pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not NAME=VALUE")
        try:
            found[name.strip()] = msgspec.json.decode(value)  # a number or a truth value
        except msgspec.DecodeError:
            found[name.strip()] = value.strip()
    return found


def _parts(kind: Any) -> Iterator[Any]:
    """The plain types in an annotation; the values of a Literal."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _parts(get_args(kind)[0])
    elif origin in (list, dict):
        yield origin
    elif get_args(kind):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _extras(kind: Any) -> Iterator[dict[str, Any]]:
    """What annotations say beside the type, also those inside a union."""
    if get_origin(kind) is Annotated:
        yield from (meta.extra for meta in kind.__metadata__ if isinstance(meta, msgspec.Meta) and meta.extra)
    for part in get_args(kind):
        yield from _extras(part)
