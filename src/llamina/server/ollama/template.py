"""Ollama's prompt templates: the part of Go's templates that prompts for one question and its answer are made of.

Fields are `.System`, `.Prompt`, `.Response` and `.Suffix`; `if`, `else if`, `else` and `end` choose by them, with
`and`, `or` and `not`. There is nothing in it that could loop.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llamina.server.errors import ApiError

FIELDS = ("System", "Prompt", "Response", "Suffix")
ACTION = re.compile(r"\{\{(- )?(.*?)( -)?\}\}", re.DOTALL)
PLAIN = "{{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }}{{ .Response }}"  # of a model without a template

Condition = tuple[str, ...]
Nodes = list[Any]  # texts, fields as (name,), and the branches of an `if` as [(condition, nodes), …]


class Template:
    """A template that was read. Raises ApiError for one that has more in it than this knows."""

    def __init__(self, source: str, param: str = "template") -> None:
        self._param = param
        whole = source if ".Response" in source else source + "{{ .Response }}"
        self._nodes, end = self._block(_tokens(whole), top=True)
        if end != "":
            raise self._error(f"{{{{ {end} }}}} without an if before it")

    def prompt(self, messages: list[dict[str, Any]]) -> str:
        """The prompt of a conversation, up to where the answer is to go on."""
        text, turn = "", dict.fromkeys(FIELDS, "")
        for message in messages:
            role, content = message["role"], message["content"]
            field = {"system": "System", "user": "Prompt", "assistant": "Response"}.get(role)
            if field is None or "tool_calls" in message:
                raise ApiError(400, f"{self._param} knows no tools, and the messages have some", param="messages")
            if turn["Response"] or (turn["Prompt"] and field == "System"):
                text += "".join(_render(self._nodes, turn))
                turn = dict.fromkeys(FIELDS, "")
            turn[field] += f"\n\n{content}" if turn[field] else content
        return text + self.begin(turn)

    def begin(self, values: Mapping[str, str]) -> str:
        """The template up to its response."""
        parts = []
        for part in _render(self._nodes, values, mark=True):
            if part is None:
                break
            parts.append(part)
        return "".join(parts) + values["Response"]

    def _block(self, tokens: Iterator[tuple[str, str]], top: bool = False) -> tuple[Nodes, str]:
        """Nodes up to the action that ends the block, and that action; the end of the template is an empty one."""
        nodes: Nodes = []
        for kind, text in tokens:
            words = text.split()
            if kind == "text":
                nodes.append(text)
            elif words[:1] == ["if"]:
                nodes.append(self._branches(words[1:], tokens))
            elif words[:1] in (["else"], ["end"]):
                return nodes, " ".join(words)
            elif len(words) == 1 and words[0].removeprefix(".") in FIELDS and words[0].startswith("."):
                nodes.append((words[0][1:],))
            elif not text.startswith("/*"):
                raise self._error(f"{{{{ {text} }}}} is not known")
        if not top:
            raise self._error("an if has no end")
        return nodes, ""

    def _branches(self, words: list[str], tokens: Iterator[tuple[str, str]]) -> list[tuple[Condition, Nodes]]:
        branches = []
        condition = self._condition(words)
        while True:
            nodes, end = self._block(tokens)
            branches.append((condition, nodes))
            if end == "end":
                return branches
            condition = self._condition(end.split()[2:]) if end.startswith("else if") else ()

    def _condition(self, words: list[str]) -> Condition:
        """("and" | "or" | "not", field, …); of a field alone, with "and"."""
        operator, names = (words[0], words[1:]) if words[:1] in (["and"], ["or"], ["not"]) else ("and", words)
        if not names or not all(name.startswith(".") and name[1:] in FIELDS for name in names):
            raise self._error(f"{{{{ if {' '.join(words)} }}}} is not known")
        return (operator, *(name[1:] for name in names))

    def _error(self, what: str) -> ApiError:
        known = ", ".join(f".{name}" for name in FIELDS)
        message = f"{self._param}: {what}: must be a Go template of {known} with if, else, and, or, not"
        return ApiError(400, message, param=self._param)


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    """("text" | "action", its text); `{{-` and `-}}` trim the text next to them."""
    at, trim = 0, False
    for match in ACTION.finditer(source):
        text = source[at : match.start()]
        text = text.lstrip() if trim else text
        yield "text", text.rstrip() if match[1] else text
        yield "action", match[2].strip()
        at, trim = match.end(), match[3] is not None
    yield "text", source[at:].lstrip() if trim else source[at:]


def _holds(condition: Condition, values: Mapping[str, str]) -> bool:
    if not condition:
        return True
    operator, *names = condition
    found = [bool(values[name]) for name in names]
    return any(found) if operator == "or" else not any(found) if operator == "not" else all(found)


def _render(nodes: Nodes, values: Mapping[str, str], mark: bool = False) -> Iterator[Any]:
    """The texts; with `mark`, None in the place of the response."""
    for node in nodes:
        if isinstance(node, str):
            yield node
        elif isinstance(node, tuple):
            yield None if mark and node[0] == "Response" else values[node[0]]
        else:
            chosen: Nodes = next((block for condition, block in node if _holds(condition, values)), [])
            yield from _render(chosen, values, mark)
