"""Which format an answer has: the chat template's own, or the one that the caller names."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llamina.chat.formats.families import FORMATS, HERMES
from llamina.chat.formats.format import Format, Markers
from llamina.chat.formats.objects import Objects
from llamina.errors import RequestError

# What a chat template of a format contains; the first row that matches counts.
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", ("<|channel|>", "<|message|>")),
    ("seed", ("<seed:tool_call>",)),
    ("minimax", ("<minimax:tool_call>",)),
    ("deepseek-v3.2", ("DSML", "function_calls")),
    ("deepseek-v4", ("DSML", "tool_calls")),
    ("qwen3-coder", ("<tool_call>", "<function=")),
    ("glm", ("<tool_call>", "<arg_key>")),
    ("kimi", ("<|tool_calls_section_begin|>",)),
    ("deepseek", ("<｜tool▁calls▁begin｜>", "```json")),
    ("deepseek-v3.1", ("<｜tool▁calls▁begin｜>",)),
    ("mistral-args", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("functiongemma", ("<start_function_call>",)),
    ("gemma4", ("<|tool_call>", "call:")),
    ("lfm2", ("<|tool_call_start|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("minimax-m1", ("<tool_calls>", "<end_of_sentence>")),
    ("apriel", ("<tool_calls>[",)),
    ("gigachat", ("<|function_call|>",)),
    ("nemotron", ("<TOOLCALL>",)),
    ("command", ("<|START_ACTION|>",)),
    ("firefunction", (" functools[",)),
    ("functionary", ("<function=", "<|python_tag|>")),
    ("phi4", ("<|tool_call|>", "<|/tool_call|>")),
    ("granite", ("<|tool_call|>",)),
    ("hermes", ("<tool_call>",)),
    ("llama3", ("<|python_tag|>",)),
    ("llama3", ("<|start_header_id|>", '"parameters": ')),
    ("gemma", ("<start_of_turn>",)),
)


def format_of(template: str) -> Format:
    """Return the format of a chat template; `generic` if nothing in it tells."""
    name = next((name for name, signs in SIGNS if all(sign in template for sign in signs)), "generic")
    return FORMATS[name]


def choose(
    template: str,
    format: str | Format | Sequence[str] | None = None,
    reasoning: bool | Sequence[str] = True,
    knows_tools: bool = True,
) -> Format:
    """Return the format of a template, of a name, or with two markers of the caller's around JSON.

    `reasoning`: True for the format's own markers, False to leave reasoning in the text, or two markers. A template
    that knows no tools is prompted for calls in the generic format, which is read as well. Raises RequestError.
    """
    if format is None:
        chosen = format_of(template)
        if not knows_tools and not chosen.messages:
            chosen = replace(chosen, styles=tuple(dict.fromkeys([HERMES, *chosen.styles])), bare=True)
    elif isinstance(format, Format):
        chosen = format
    elif isinstance(format, str):
        if format not in FORMATS:
            raise RequestError(f"format is {format!r}: known are {', '.join(FORMATS)}", "format")
        chosen = FORMATS[format]
    else:
        chosen = Format("custom", (Objects(*_markers(format, "format")),))
    if reasoning is True:
        return chosen
    return replace(chosen, reasoning=None if reasoning is False else _markers(reasoning, "reasoning"))


def _markers(value: Sequence[str], param: Literal["format", "reasoning"]) -> Markers:
    if isinstance(value, str) or len(value) != 2 or not all(isinstance(mark, str) and mark for mark in value):
        raise RequestError(f"{param} is {value!r}: must be two markers, such as ('<a>', '</a>')", param)
    return value[0], value[1]
