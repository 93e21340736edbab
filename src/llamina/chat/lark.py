"""Grammars that make a model write calls, in llguidance's dialect of Lark."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]


class Lark:
    """Rules of a grammar, written part by part. Markers that are single tokens become those tokens."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens = tokens
        self._marks = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))) if tokens else None
        self._rules: list[str] = []

    def rule(self, body: str, attributes: str = "") -> str:
        """Add a rule; its name."""
        name = f"rule_{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {body}")
        return name

    def text(self, text: str) -> str:
        """Exactly this text."""
        found: list[str] = []
        at = 0
        for mark in self._marks.finditer(text) if self._marks else ():
            found += [_quoted(text[at : mark.start()]), f"<[{self._tokens[mark[0]]}]>"]
            at = mark.end()
        return " ".join(part for part in [*found, _quoted(text[at:])] if part)

    def json(self, schema: Schema) -> str:
        """A JSON value by a schema."""
        return self.rule(f"%json {json.dumps(schema)}")

    def free(self, end: str) -> list[str]:
        """Any text, up to an end that it does not contain."""
        mark = self._marks.match(end) if self._marks else None
        if mark:  # text cannot contain a token that is none of its own
            return [self.rule("/(?s:.*)/"), self.text(end)]
        plain = self._marks.split(end, 1)[0] if self._marks else end
        rest = end[len(plain) :]
        return [self.rule("/(?s:.*)/", f"[suffix={_quoted(plain)}]"), *([self.text(rest)] if rest else [])]

    def plain(self, schema: Schema, end: str) -> list[str]:
        """A value as text up to an end: any text for a string, JSON for what is none."""
        if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
            return [f"({' | '.join(self.text(value) for value in schema['enum'])})", self.text(end)]
        if schema.get("type") == "string":
            return self.free(end)
        return [self.json(schema), self.text(end)]

    def maybe(self, parts: list[str], needed: bool) -> str:
        """Parts in a row, which may be left out if they are not needed."""
        body = " ".join(part for part in parts if part)
        return body if needed else f"({body})?"

    def listed(self, schema: Schema, pair: Callable[[str, Schema], list[str]], separator: str) -> str:
        """The properties of an object, with something between them: those that are needed, then any of the others."""
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
        """Name, schema and necessity of each property, needed ones first."""
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        needed = schema.get("required", ())
        found = [(key, {**shared, **inner}, key in needed) for key, inner in schema.get("properties", {}).items()]
        return sorted(found, key=lambda item: not item[2])

    def grammar(self, start: str) -> str:
        """The whole, beginning with this rule."""
        return "\n".join([f"start: {start}", *self._rules]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
