"""The constraint of a request as the caller gave it: one of five languages, and its text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from llamina.errors import InvalidGrammar
from llamina.grammar.schema import plain

Kind = Literal["grammar", "json_schema", "regex", "choices", "lark"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_LENGTH = 1 << 20  # characters


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a constraint and the language it is written in."""

    kind: Kind
    text: str


def source(
    grammar: str | None = None,
    json_schema: str | Mapping[str, Any] | bool | None = None,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    lark: str | None = None,
) -> Source | None:
    """Return the constraint that is given, or None. Raises InvalidGrammar for two at once and for malformed ones."""
    options: dict[Kind, Any] = {
        "grammar": grammar,
        "json_schema": json_schema,
        "regex": regex,
        "choices": choices,
        "lark": lark,
    }
    given: list[Kind] = [kind for kind, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidGrammar(f"{' and '.join(given)} are given: give one of them", given[1])
    if not given:
        return None
    kind = given[0]
    text = {"json_schema": _schema, "choices": _choices}.get(kind, _text)(kind, options[kind])
    if len(text) > MAX_LENGTH:
        message = f"{kind} has {len(text)} characters: at most {MAX_LENGTH} are allowed"
        raise InvalidGrammar(message, kind)
    return Source(kind, text)


def _text(kind: Kind, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidGrammar(f"{kind} is {value!r}: must be a string", kind)
    return value


def _schema(kind: Kind, value: object) -> str:
    """Return the JSON text of a schema that is given as an object, as JSON text, or as `True`."""
    try:
        schema = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(plain(schema), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidGrammar(f"json_schema is not JSON: {error}", kind) from None
    if schema is True:
        return "{}"
    if not isinstance(schema, Mapping):
        raise InvalidGrammar(f"json_schema is {value!r}: must be an object", kind)
    return text


def _choices(kind: Kind, value: object) -> str:
    texts = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise InvalidGrammar(f"choices is {value!r}: must be a list of non-empty strings", kind)
    return json.dumps(texts, ensure_ascii=False)
