"""Checks that an object of OpenAI's client is what its type says: the client itself believes what it gets."""

from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)


def strict(value: T) -> T:
    """The object, if every field is there, of the right type, and none is unknown."""
    type(value).model_validate_json(value.model_dump_json(exclude_unset=True), strict=True)
    for path, unknown in _unknown(value, type(value).__name__):
        raise AssertionError(f"{path} has unknown fields: {unknown}")
    return value


def _unknown(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        found = [(path, value.model_extra)] if value.model_extra else []
        return found + [
            x for name in type(value).model_fields for x in _unknown(getattr(value, name, None), f"{path}.{name}")
        ]
    if isinstance(value, list):
        return [x for index, item in enumerate(value) for x in _unknown(item, f"{path}[{index}]")]
    return []
