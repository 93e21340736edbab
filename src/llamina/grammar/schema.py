"""JSON schemas without what says nothing, so that only keywords that mean something can be refused."""

from collections.abc import Mapping
from typing import Any

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = (
    "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
NEED = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}  # nothing without the other
OPEN: tuple[Any, ...] = (True, {})  # schemas that everything fits
EMPTY: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,), "unevaluatedItems": OPEN, "unevaluatedProperties": OPEN, "propertyNames": OPEN,
    "not": (False,), "dependentRequired": ({},), "dependentSchemas": ({},), "dependencies": ({},),
}  # fmt: skip


def plain(schema: Any) -> Any:
    """The same schema; values of `enum`, `const` and the like are left alone."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in BY_NAME and isinstance(value, Mapping):
            value = {name: plain(inner) for name, inner in value.items()}
        elif (key in LISTED or key == "items") and isinstance(value, list | tuple):
            value = [plain(inner) for inner in value]
        elif key in SINGLE:
            value = plain(value)
        elif key in COUNTS and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not _says_nothing(key, value, schema):
            found[key] = value
    return found


def _says_nothing(key: str, value: Any, schema: Mapping[str, Any]) -> bool:
    if key == "if":
        return not schema.keys() & {"then", "else"}
    if key in NEED:
        return NEED[key] not in schema
    return any(value is empty or (empty == value == {}) for empty in EMPTY.get(key, ()))
