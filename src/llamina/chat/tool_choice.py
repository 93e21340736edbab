"""`tool_choice`: which tools an answer may or must call, and the grammar that enforces it."""

from collections.abc import Mapping
from typing import Any, Literal

from llamina.chat.formats import Format, Style
from llamina.chat.formats.lark import Lark
from llamina.chat.tools import Tools
from llamina.errors import RequestError
from llamina.grammar import Triggers

ToolChoice = str | Mapping[str, Any]


def chosen(tools: Tools, choice: ToolChoice) -> tuple[Tools, bool]:
    """Return the tools that may be called, and whether one must be.

    The choice is `auto`, `none`, `required` (any of them), or `{"type": "function", "function": {"name": …}}` (this
    one). Raises RequestError for anything else, and where there is no such tool.
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
        raise RequestError(f"tool_choice is {choice!r}: must be {expected}", "tool_choice")
    return name


def call_grammar(
    format: Format, tools: Tools, tokens: Mapping[str, int], thinks: Literal["no", "may", "must"], parallel: bool
) -> str:
    """Return the Lark grammar of an answer that must be a call. `tokens` maps markers that are control tokens to ids.

    `thinks`: whether reasoning may come before the call, or must because the prompt has opened it.
    """
    lark, style = Lark(tokens), format.styles[0]
    block = _block(lark, style, tools, parallel)
    start = rf"{block} (/\n?/ {block})*" if parallel and style.block.between is None else block
    if format.reasoning is None or thinks == "no":
        return lark.grammar(start)
    opened, closed = format.reasoning
    reasoning = " ".join([*lark.free(closed), r"/\s{0,4}/"])
    return lark.grammar(f"{reasoning} {start}" if thinks == "must" else f"({lark.text(opened)} {reasoning})? {start}")


def lazy_grammar(
    format: Format, tools: Tools, tokens: Mapping[str, int], thinking: bool
) -> tuple[str, Triggers] | None:
    """Return the Lark grammar of calls in an answer that need not make any, and the triggers that start it.

    None if the format has no text that always opens a call.
    """
    lark, style = Lark(tokens), format.styles[0]
    anywhere = (style.trigger,) if style.trigger else ()
    rules = [_block(lark, style, tools, parallel=True, loose=True)] if anywhere else []
    first: list[str] = []
    for name in tools if format.bare else ():
        begins = [f'{{"name": "{name}", "{key}": ' for key in ("arguments", "parameters")]
        rules.append(f'({" | ".join(map(lark.text, begins))}) {lark.json(tools.parameters(name))} "}}"')
        first += begins
    if not rules:
        return None
    return lark.grammar(" | ".join(rules)), Triggers(anywhere, tuple(first), format.reasoning, thinking, format.breaks)


def _block(lark: Lark, style: Style, tools: Tools, parallel: bool, loose: bool = False) -> str:
    """Add the rule for a block of one call, or several, and return its name.

    `loose`: whitespace after the opening marker may be left out, for the model has written that marker unguided.
    """
    calls = [lark.rule(" ".join(filter(None, style.write(name, tools.parameters(name), lark)))) for name in tools]
    call, block = lark.rule(" | ".join(calls)), style.block
    rest = block.before.removeprefix(style.trigger)
    blank = r"/[ \n]?/" if loose and rest != rest.lstrip() else ""
    before = [lark.text(style.trigger), blank, lark.text(rest.lstrip() if blank else rest)]
    several = block.between is not None and parallel
    between = lark.text(block.between) if block.between else r"/\n?/"
    parts = [*before, call, f"({between} {call})*" if several else "", lark.text(block.after)]
    return lark.rule(" ".join(filter(None, parts)))
