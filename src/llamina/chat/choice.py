"""Which tools an answer may or must call, and the grammar that sees to it."""

from collections.abc import Mapping
from typing import Any, Literal

from llamina.chat.calls import Tools
from llamina.chat.formats import Format
from llamina.chat.lark import Lark
from llamina.errors import RequestError

ToolChoice = str | Mapping[str, Any]


def chosen(tools: Tools, choice: ToolChoice) -> tuple[Tools, bool]:
    """The tools that may be called, and whether one must be.

    `auto` and `none`; `required` for any of them; `{"type": "function", "function": {"name": …}}` for a certain one.
    """
    if choice == "none" or (choice == "auto" and not len(tools)):
        return Tools(), False
    if choice == "auto":
        return tools, False
    if not len(tools):
        raise RequestError(f"tool_choice is {choice!r}, and there are no tools: give some", "tool_choice")
    if choice == "required":
        return tools, True
    name = _name(choice)
    if name not in tools:
        raise RequestError(f"tool_choice names {name!r}: the tools are {', '.join(tools)}", "tool_choice")
    return tools.only(name), True


def _name(choice: ToolChoice) -> str:
    function = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        expected = 'auto, none, required or {"type": "function", "function": {"name": …}}'
        raise RequestError(f"tool_choice is {choice!r}: {expected} is expected", "tool_choice")
    return name


def call_grammar(
    format: Format, tools: Tools, tokens: Mapping[str, int], thinks: Literal["no", "may", "must"], parallel: bool
) -> str:
    """A grammar for an answer that is a call. `tokens` are the markers that are tokens.

    Before the call the model may think, or it must because its prompt has opened the reasoning.
    """
    lark, style = Lark(tokens), format.styles[0]
    calls = [lark.rule(" ".join(filter(None, style.write(name, tools.parameters(name), lark)))) for name in tools]
    call = lark.rule(" | ".join(calls))
    start = rf"{call} (/\n?/ {call})*" if parallel else call
    if format.reasoning is None or thinks == "no":
        return lark.grammar(start)
    opened, closed = format.reasoning
    thoughts = " ".join([*lark.free(closed), r"/\s{0,4}/"])
    return lark.grammar(f"{thoughts} {start}" if thinks == "must" else f"({lark.text(opened)} {thoughts})? {start}")
