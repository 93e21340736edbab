"""The formats of families of models, by name."""

from llamina.chat.formats.braces import Braces
from llamina.chat.formats.format import Format
from llamina.chat.formats.harmony import REASONING, Harmony
from llamina.chat.formats.named import Named
from llamina.chat.formats.objects import Objects
from llamina.chat.formats.pythonic import Pythonic, PythonTag
from llamina.chat.formats.tags import KeyValueTags, Tags

FENCED_JSON = Objects("```json", "```", offered=True)
HERMES = Objects("<tool_call>", "</tool_call>")
_KIMI_PREFIX = "functions."


def _kimi(header: str) -> tuple[str, str]:
    """Return the name and the id of `functions.name:0`, which is itself the id."""
    name, _, number = header.removeprefix(_KIMI_PREFIX).rpartition(":")
    return (name, header) if number.isdigit() else (header.removeprefix(_KIMI_PREFIX), "")


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
            (HERMES, FENCED_JSON, Pythonic("```tool_code", "```")),
            bare=True,
        ),
        Format("hermes", (HERMES,)),
        Format(
            "qwen3-coder",
            (Tags("<tool_call>", "</tool_call>", *QWEN_TAGS, open_optional=True),),
            breaks=("<tool_call>",),
        ),
        Format(
            "seed",
            (Tags("<seed:tool_call>", "</seed:tool_call>", *QWEN_TAGS),),
            reasoning=("<seed:think>", "</seed:think>"),
        ),
        Format("glm", (KeyValueTags(),)),
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
        Format("gemma", (Pythonic("```tool_code", "```"), FENCED_JSON), bare=True),
        Format("lfm2", (Pythonic("<|tool_call_start|>", "<|tool_call_end|>", listed=True, offered=False),)),
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
