"""A writer of grammars for calls, in llguidance's dialect of Lark."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]


class Lark:
    """Collects the rules of a grammar. Methods return text to use in the body of a rule."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        """`tokens` maps markers that are single tokens to their ids; the grammar asks for the tokens themselves."""
        self._tokens = tokens
        self._markers = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))) if tokens else None
        self._rules: list[str] = []

    def rule(self, body: str, attributes: str = "") -> str:
        """Add a rule and return its name."""
        name = f"rule_{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {body}")
        return name

    def text(self, text: str) -> str:
        """Match exactly this text."""
        parts: list[str] = []
        at = 0
        for marker in self._markers.finditer(text) if self._markers else ():
            parts += [_quoted(text[at : marker.start()]), f"<[{self._tokens[marker[0]]}]>"]
            at = marker.end()
        return " ".join(part for part in [*parts, _quoted(text[at:])] if part)

    def json(self, schema: Schema) -> str:
        """Match a JSON value that fits a schema."""
        return self.rule(f"%json {json.dumps(schema)}")

    def free(self, end: str) -> list[str]:
        """Match any text up to and including `end`, which it does not contain."""
        marker = self._markers.match(end) if self._markers else None
        if marker:  # a control token cannot be part of text
            return [self.rule("/(?s:.*)/"), self.text(end)]
        plain = self._markers.split(end, 1)[0] if self._markers else end
        rest = end[len(plain) :]
        return [self.rule("/(?s:.*)/", f"[suffix={_quoted(plain)}]"), *([self.text(rest)] if rest else [])]

    def plain(self, schema: Schema, end: str) -> list[str]:
        """Match a value up to and including `end`: any text for a string, JSON for other types."""
        if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
            return [f"({' | '.join(self.text(value) for value in schema['enum'])})", self.text(end)]
        if schema.get("type") == "string":
            return self.free(end)
        return [self.json(schema), self.text(end)]

    def maybe(self, parts: list[str], needed: bool) -> str:
        """Match the parts in a row; optional unless `needed`."""
        body = " ".join(part for part in parts if part)
        return body if needed else f"({body})?"

    def listed(self, schema: Schema, pair: Callable[[str, Schema], list[str]], separator: str) -> str:
        """Match the properties of an object, separated: the required ones, then any of the others."""
        bodies = [(needed, " ".join(pair(key, inner))) for key, inner, needed in self.properties(schema)]
        between = self.text(separator)
        needed = f" {between} ".join(body for need, body in bodies if need)
        others = [body for need, body in bodies if not need]
        after = [f"({between} {body})?" for body in others]
        if needed:
            return " ".join([needed, *after])
        firsts = [" ".join([body, *after[at + 1 :]]) for at, body in enumerate(others)]
        return f"({' | '.join(firsts)})?" if firsts else ""

    def properties(self, schema: Schema) -> list[tuple[str, Schema, bool]]:
        """Return (name, schema, required) of each property, required ones first."""
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        required = schema.get("required", ())
        rows = [(key, {**shared, **inner}, key in required) for key, inner in schema.get("properties", {}).items()]
        return sorted(rows, key=lambda row: not row[2])

    def grammar(self, start: str) -> str:
        """Return the whole grammar, with this body for its start rule."""
        return "\n".join([f"start: {start}", *self._rules]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
