"""How families of models write reasoning and calls, and which way a chat template means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llamina.chat.braces import Braces
from llamina.chat.harmony import REASONING, Harmony
from llamina.chat.pythonic import Pythonic, PythonTag
from llamina.chat.styles import Named, Objects, Style
from llamina.chat.tags import Pairs, Tags
from llamina.errors import RequestError

Marks = tuple[str, str]
THINK: Marks = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Format:
    """A family's way. The first style is the one that calls are written in."""

    name: str
    styles: tuple[Style, ...]
    reasoning: Marks | None = THINK  # markers around it; None: it is left in the text
    breaks: tuple[str, ...] = ()  # markers of calls that end reasoning, too
    bare: bool = False  # an object with the name of a tool is a call without any marker
    messages: bool = False  # the answer consists of harmony's messages

    @property
    def markers(self) -> tuple[str, ...]:
        """All that a parser needs to see, even where it is a control token."""
        return tuple(dict.fromkeys([*(self.reasoning or ()), *(m for s in self.styles for m in s.markers if m)]))


JSON_BLOCK = Objects("```json", "```", known=True)
HERMES = Objects("<tool_call>", "</tool_call>")
_KIMI_NAME = "functions."


def _kimi(header: str) -> tuple[str, str]:
    """`functions.name:0` is a name, and an id as it stands."""
    name, _, number = header.removeprefix(_KIMI_NAME).rpartition(":")
    return (name, header) if number.isdigit() else (header.removeprefix(_KIMI_NAME), "")


QWEN_TAGS = (("<function=", ">", "</function>"), ("<parameter=", ">", "</parameter>"))
MINIMAX_TAGS = (('<invoke name="', '">', "</invoke>"), ('<parameter name="', '">', "</parameter>"))
DSML_TAGS = (
    ('<｜DSML｜invoke name="', '">', "</｜DSML｜invoke>"),
    ('<｜DSML｜parameter name="', '">', "</｜DSML｜parameter>"),
)

FORMATS = {
    format.name: format
    for format in (
        Format(
            "generic",
            (HERMES, JSON_BLOCK, Pythonic("```tool_code", "```")),
            bare=True,
        ),
        Format("hermes", (HERMES,)),
        Format("qwen3-coder", (Tags("<tool_call>", "</tool_call>", *QWEN_TAGS, stray=True),), breaks=("<tool_call>",)),
        Format(
            "seed",
            (Tags("<seed:tool_call>", "</seed:tool_call>", *QWEN_TAGS),),
            reasoning=("<seed:think>", "</seed:think>"),
        ),
        Format("glm", (Pairs(),)),
        Format(
            "deepseek-v3.2",
            (Tags("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", *DSML_TAGS, typed='" string="'),),
            breaks=("<｜DSML｜function_calls>",),
        ),
        Format(
            "deepseek-v4",
            (Tags("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", *DSML_TAGS, typed='" string="'),),
            breaks=("<｜DSML｜tool_calls>",),
        ),
        Format("minimax", (Tags("<minimax:tool_call>", "</minimax:tool_call>", *MINIMAX_TAGS),)),
        Format("llama3", (PythonTag(),), bare=True),
        Format("mistral", (Objects("[TOOL_CALLS]", "", listed=True, id_last=True, blank=""),), ("[THINK]", "[/THINK]")),
        Format(
            "mistral-args",
            (Named("[TOOL_CALLS]", "[ARGS]", id_marker="[CALL_ID]", objects=True),),
            ("[THINK]", "[/THINK]"),
        ),
        Format(
            "deepseek",
            (
                Named(
                    "<｜tool▁call▁begin｜>",
                    "<｜tool▁sep｜>",
                    "<｜tool▁call▁end｜>",
                    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
                    fenced=True,
                ),
            ),
        ),
        Format(
            "deepseek-v3.1",
            (
                Named(
                    "<｜tool▁call▁begin｜>",
                    "<｜tool▁sep｜>",
                    "<｜tool▁call▁end｜>",
                    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
                ),
            ),
        ),
        Format(
            "kimi",
            (
                Named(
                    "<|tool_call_begin|>",
                    "<|tool_call_argument_begin|>",
                    "<|tool_call_end|>",
                    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
                    header=_kimi,
                ),
            ),
        ),
        Format("functionary", (Named("<function=", ">", "</function>"),)),
        Format("functiongemma", (Braces("<start_function_call>", "<end_function_call>", "<escape>"),)),
        Format("gemma4", (Braces("<|tool_call>", "<tool_call|>", '<|"|>'),), ("<|channel>thought", "<channel|>")),
        Format("gemma", (Pythonic("```tool_code", "```"), JSON_BLOCK), bare=True),
        Format("lfm2", (Pythonic("<|tool_call_start|>", "<|tool_call_end|>", listed=True, known=False),)),
        Format("nemotron", (Objects("<TOOLCALL>", "</TOOLCALL>", listed=True, blank=""),)),
        Format("apriel", (Objects("<tool_calls>", "</tool_calls>", listed=True, blank=""),)),
        Format("minimax-m1", (Objects("<tool_calls>", "</tool_calls>"),)),
        Format("gigachat", (Objects("<|function_call|>", "", blank=""),)),
        Format("granite", (Objects("<|tool_call|>", "", listed=True, blank=""),)),
        Format("phi4", (Objects("<|tool_call|>", "<|/tool_call|>", listed=True, blank=""),)),
        Format("firefunction", (Objects("functools", "", listed=True, blank=""),)),
        Format(
            "command",
            (Objects("<|START_ACTION|>", "<|END_ACTION|>", ("tool_name", "parameters"), listed=True),),
            ("<|START_THINKING|>", "<|END_THINKING|>"),
        ),
        Format("harmony", (Harmony(),), REASONING, messages=True),
    )
}

# What a template must contain to mean a format; the first that fits is taken.
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
    """The format that a chat template means; `generic` if it does not say."""
    name = next((name for name, signs in SIGNS if all(sign in template for sign in signs)), "generic")
    return FORMATS[name]


def choose(
    template: str,
    format: str | Format | Sequence[str] | None = None,
    reasoning: bool | Sequence[str] = True,
    knows_tools: bool = True,
) -> Format:
    """The format of a template, or one by name, or between two markers of one's own; reasoning likewise.

    A template that knows no tools is helped with words that describe the generic one.
    """
    if format is None:
        found = format_of(template)
        if not knows_tools and not found.messages:
            found = replace(found, styles=tuple(dict.fromkeys([HERMES, *found.styles])), bare=True)
    elif isinstance(format, Format):
        found = format
    elif isinstance(format, str):
        if format not in FORMATS:
            raise RequestError(f"format is {format!r}: known are {', '.join(FORMATS)}", "format")
        found = FORMATS[format]
    else:
        found = Format("custom", (Objects(*_marks(format, "format")),))
    if reasoning is True:
        return found
    return replace(found, reasoning=None if reasoning is False else _marks(reasoning, "reasoning"))


def _marks(value: Sequence[str], param: Literal["format", "reasoning"]) -> Marks:
    if isinstance(value, str) or len(value) != 2 or not all(isinstance(mark, str) and mark for mark in value):
        raise RequestError(f"{param} is {value!r}: two markers, such as ('<a>', '</a>'), are expected", param)
    return value[0], value[1]
