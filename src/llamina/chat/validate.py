"""Whether a JSON value fits a JSON schema. `format` and keywords that are not listed here are ignored."""

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from llamina.grammar.pattern import found_in

MAX_REFS = 64  # references that may lead to each other before the value gets smaller
MAX_STEPS = 50_000  # schemas that are looked at: references may double them with every step


def type_of(value: Any) -> str:
    """Return the JSON type of a value; 1.0 is a `number`."""
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def is_type(value: Any, types: set[str]) -> bool:
    """Whether a value is of one of these JSON types; 1.0 is an integer, too."""
    kind = type_of(value)
    whole = kind == "number" and float(value).is_integer() and "integer" in types
    return kind in types or (kind == "integer" and "number" in types) or whole


def fits(value: Any, schema: Any) -> bool:
    """Whether a value fits a schema. A malformed schema fits nothing."""
    try:
        return _fits(value, schema, _Document(schema), 0)
    except (TypeError, ValueError, AttributeError, re.error, RecursionError):
        return False


def fits_member(name: str, value: Any, schema: Any) -> bool:
    """Whether an object with this member may fit a schema, by what that says of properties."""
    try:
        return not isinstance(schema, Mapping) or _member(name, value, schema, _Document(schema))
    except (TypeError, ValueError, AttributeError, re.error, RecursionError):
        return False


class _Document:
    """The schema that references point into, and how many steps were taken in it."""

    def __init__(self, schema: Any) -> None:
        self.schema, self.steps = schema, 0


def _fits(value: Any, schema: Any, root: _Document, refs: int = 0) -> bool:
    """Whether a value fits a schema whose references point into `root`. Raises ValueError if that takes too long."""
    root.steps += 1
    if root.steps > MAX_STEPS:
        raise ValueError("the schema has too many references")
    if not isinstance(schema, Mapping):
        return schema is not False
    return all(_keyword(key, value, schema, root, refs) for key in schema)


def _keyword(key: str, value: Any, schema: Mapping[str, Any], root: _Document, refs: int) -> bool:
    """Whether a value fits what one keyword of the schema says."""
    of = schema[key]
    match key:
        case "$ref":
            return refs < MAX_REFS and _fits(value, _resolve(of, root), root, refs + 1)
        case "allOf":
            return all(_fits(value, option, root, refs) for option in of)
        case "anyOf":
            return any(_fits(value, option, root, refs) for option in of)
        case "oneOf":
            return sum(_fits(value, option, root, refs) for option in of) == 1
        case "not":
            return not _fits(value, of, root, refs)
        case "type":
            return is_type(value, {of} if isinstance(of, str) else set(of))
        case "enum":
            return any(_same(value, option) for option in of)
        case "const":
            return _same(value, of)
    match value:
        case bool():
            return True
        case int() | float():
            return _number(key, value, of)
        case str():
            return _string(key, value, of)
        case list():
            return _array(key, value, schema, root)
        case dict():
            return _object(key, value, schema, root)
    return True


def _number(key: str, value: float, of: Any) -> bool:
    match key:
        case "minimum":
            return bool(value >= of)
        case "maximum":
            return bool(value <= of)
        case "exclusiveMinimum":
            return bool(value > of)
        case "exclusiveMaximum":
            return bool(value < of)
        case "multipleOf":
            ratio = value / of
            return math.isfinite(ratio) and math.isclose(ratio, round(ratio), rel_tol=1e-12)
    return True


def _string(key: str, value: str, of: Any) -> bool:
    match key:
        case "minLength":
            return bool(len(value) >= of)
        case "maxLength":
            return bool(len(value) <= of)
        case "pattern":
            return found_in(of, value)
    return True


def _array(key: str, value: list[Any], schema: Mapping[str, Any], root: _Document) -> bool:
    of = schema[key]
    match key:
        case "minItems":
            return bool(len(value) >= of)
        case "maxItems":
            return bool(len(value) <= of)
        case "uniqueItems":
            return not of or not any(_same(one, other) for i, one in enumerate(value) for other in value[:i])
        case "prefixItems":
            return all(_fits(item, option, root) for item, option in zip(value, of, strict=False))
        case "items":
            return all(_fits(item, of, root) for item in value[len(schema.get("prefixItems", ())) :])
    return True


def _object(key: str, value: dict[str, Any], schema: Mapping[str, Any], root: _Document) -> bool:
    of = schema[key]
    match key:
        case "required":
            return all(name in value for name in of)
        case "minProperties":
            return bool(len(value) >= of)
        case "maxProperties":
            return bool(len(value) <= of)
        case "properties" | "patternProperties" | "additionalProperties":
            return all(_member(name, inner, schema, root) for name, inner in value.items())
    return True


def _member(name: str, value: Any, schema: Mapping[str, Any], root: _Document) -> bool:
    """Whether an object may have this member, by the keywords for properties."""
    schemas = [of for key, of in schema.get("properties", {}).items() if key == name]
    schemas += [of for pattern, of in schema.get("patternProperties", {}).items() if found_in(pattern, name)]
    return all(_fits(value, of, root) for of in schemas or [schema.get("additionalProperties", True)])


def _resolve(ref: str, root: _Document) -> Any:
    """Return the schema that a reference into this document names; one that nothing fits if there is none."""
    if not ref.startswith("#"):
        return False
    target = root.schema
    for part in filter(None, unquote(ref[1:]).split("/")):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(part)]
        else:
            target = target.get(part, False) if isinstance(target, Mapping) else False
    return target


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)
