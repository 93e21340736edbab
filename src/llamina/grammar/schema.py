"""Removes keywords without effect from JSON schemas, so that only those with one can be refused."""

from collections.abc import Mapping
from typing import Any

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = (
    "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
NEEDS = {
    "then": "if",
    "else": "if",
    "minContains": "contains",
    "maxContains": "contains",
}  # no effect without the other
ANYTHING: tuple[Any, ...] = (True, {})  # schemas that every value fits
NO_EFFECT: dict[str, tuple[Any, ...]] = {  # keyword → values without effect
    "uniqueItems": (False,), "unevaluatedItems": ANYTHING, "unevaluatedProperties": ANYTHING, "propertyNames": ANYTHING,
    "not": (False,), "dependentRequired": ({},), "dependentSchemas": ({},), "dependencies": ({},),
}  # fmt: skip


def plain(schema: Any) -> Any:
    """Return an equivalent schema; values of `enum`, `const` and the like stay as they are."""
    if not isinstance(schema, Mapping):
        return schema
    reduced: dict[str, Any] = {}
    for key, value in schema.items():
        if key in BY_NAME and isinstance(value, Mapping):
            value = {name: plain(inner) for name, inner in value.items()}
        elif (key in LISTED or key == "items") and isinstance(value, list | tuple):
            value = [plain(inner) for inner in value]
        elif key in SINGLE:
            value = plain(value)
        elif key in COUNTS and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not _has_no_effect(key, value, schema):
            reduced[key] = value
    return reduced


def _has_no_effect(key: str, value: Any, schema: Mapping[str, Any]) -> bool:
    if key == "if":
        return not schema.keys() & {"then", "else"}
    if key in NEEDS:
        return NEEDS[key] not in schema
    return any(value is empty or (empty == value == {}) for empty in NO_EFFECT.get(key, ()))
