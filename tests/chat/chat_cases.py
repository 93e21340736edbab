"""Answers in the ways of many families, and what is in them."""

from dataclasses import dataclass
from typing import Any

from llamina.chat import FORMATS, ChatEvent, Collected, Format, Parser, Tools, merged


def tool(name: str, required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "parameters": parameters | {"required": list(properties) if required is None else required}}


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
TOOLS = Tools(
    [
        tool("add", a=INTEGER),
        tool("add_more", a=INTEGER, b=INTEGER, required=["a"]),
        tool("weather", city=STRING),
        tool("python", code=STRING),
        tool("edit", file=STRING, old=STRING, new=STRING, all={"type": "boolean"}, required=["file", "old", "new"]),
        tool("put", value={"type": ["string", "null", "number"]}, tags={"type": "array", "items": STRING}),
    ]
)


def events(format: Format, pieces: list[str], thinking: bool = False, tools: Tools = TOOLS) -> list[ChatEvent]:
    """What a parser tells when the text comes in these pieces; ids are 0, 1, ..."""
    numbers = iter(map(str, range(1000)))
    parser = Parser(format, tools, thinking, new_id=lambda: next(numbers))
    told = [event for piece in pieces for event in parser.push(piece)]
    return merged([*told, *parser.finish()])


def collected(told: list[ChatEvent]) -> Collected:
    found = Collected()
    for event in told:
        found.add(event)
    return found


@dataclass(frozen=True)
class Case:
    """An answer, and what should be found in it."""

    format: str
    answer: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()  # names and arguments
    ids: tuple[str, ...] | None = None
    thinking: bool = False  # the prompt has opened the reasoning

    def __str__(self) -> str:
        return f"{self.format}: {self.answer[:40]!r}"

    def events(self, pieces: list[str] | None = None) -> list[ChatEvent]:
        return events(FORMATS[self.format], pieces or [self.answer], self.thinking)


ADD = (("add", '{"a": 1}'),)
TWO = (("add", '{"a": 1}'), ("add_more", '{"a": 1, "b": 2}'))
HI = "Hello, world!\nWhat's up?"
THOUGHT = "I'm\nthinking"
DS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
HERMES_ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TAGGED_ADD = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
TAGGED_MORE = (
    "<tool_call>\n<function=add_more>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)

PLAIN = [Case(name, HI, HI) for name in FORMATS if name != "harmony"]
THINKING = [
    Case(name, f"{marks[0]}\n{THOUGHT}\n{marks[1]}\n\n{HI}", HI, THOUGHT)
    for name, format in FORMATS.items()
    if (marks := format.reasoning) and name != "harmony"
]

CASES = [
    *PLAIN,
    *THINKING,
    # Hermes, Qwen 2.5 and 3
    Case("hermes", HERMES_ADD, calls=ADD),
    Case("hermes", f"{HI}{HERMES_ADD}", HI, calls=ADD),
    Case("hermes", f"{THOUGHT}\n</think>\n\n{HERMES_ADD}", reasoning=THOUGHT, calls=ADD, thinking=True),
    Case("hermes", f"</think>{HI}", HI, thinking=True),
    Case("hermes", f"{HERMES_ADD}\n{HERMES_ADD} done", "done", calls=ADD * 2),
    Case("hermes", f"<think>maybe {HERMES_ADD}?</think>{HERMES_ADD}", reasoning=f"maybe {HERMES_ADD}?", calls=ADD),
    Case("hermes", '<tool_call>{"arguments": {"a": 1}, "id": "x1", "name": "add"}</tool_call>', calls=ADD, ids=("x1",)),
    Case("hermes", '<tool_call>{"name": "now"}</tool_call>', calls=(("now", "{}"),)),
    Case("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', calls=ADD),
    Case("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', calls=(("now", "{}"),)),
    Case(
        "hermes",
        '<tool_call>{"name":"weather","arguments":{ "city" : "</tool_call> \\"\\u00e9 }"  } }</tool_call>',
        calls=(("weather", '{ "city" : "</tool_call> \\"\\u00e9 }"  }'),),
    ),
    # Qwen3-Coder, Qwen 3.5, Nemotron 3
    Case("qwen3-coder", TAGGED_ADD, calls=ADD),
    Case("qwen3-coder", f"{TAGGED_ADD}\n{TAGGED_MORE}", calls=TWO),
    Case("qwen3-coder", f"{THOUGHT}\n</think>\n\n{TAGGED_ADD}", reasoning=THOUGHT, calls=ADD, thinking=True),
    Case("qwen3-coder", f"{THOUGHT}\n{TAGGED_ADD}", reasoning=THOUGHT, calls=ADD, thinking=True),
    Case("qwen3-coder", TAGGED_ADD.removeprefix("<tool_call>\n"), calls=ADD),
    Case(
        "qwen3-coder", f"Let me.\n{TAGGED_ADD.removeprefix('<tool_call>')[1:]}\n{TAGGED_MORE}", "Let me.\n", calls=TWO
    ),
    Case("qwen3-coder", "#include <functional> <function=no> x", "#include <functional> <function=no> x"),
    Case("qwen3-coder", HERMES_ADD, calls=ADD),
    Case(
        "qwen3-coder",
        '<tool_call>\n<function=python>\n<parameter=code>\ndef f():\n    print("é")\n\nf()\n\n</parameter>\n'
        "</function>\n</tool_call>",
        calls=(("python", '{"code": "def f():\\n    print(\\"é\\")\\n\\nf()\\n"}'),),
    ),
    Case(
        "qwen3-coder",
        "<tool_call><function=edit><parameter=file>a.c</parameter><parameter=old>\n<b>\n</parameter><parameter=new>1"
        "</parameter><parameter=all>true</parameter></function></tool_call>",
        calls=(("edit", '{"file": "a.c", "old": "<b>", "new": "1", "all": true}'),),
    ),
    Case(
        "qwen3-coder",
        "<tool_call><function=put><parameter=value>null</parameter><parameter=tags>[1, 2]</parameter></function>"
        "<function=put><parameter=value>no</parameter></function></tool_call>",
        calls=(("put", '{"value": null, "tags": [1, 2]}'), ("put", '{"value": "no"}')),
    ),
    Case("seed", TAGGED_ADD.replace("tool_call", "seed:tool_call"), calls=ADD),
    Case(
        "minimax",
        '<minimax:tool_call>\n<invoke name="add_more">\n<parameter name="a">1</parameter>\n<parameter name="b">2'
        "</parameter>\n</invoke>\n</minimax:tool_call>",
        calls=(("add_more", '{"a": 1, "b": 2}'),),
    ),
    Case(
        "glm",
        "<tool_call>add_more\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2"
        "</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
        calls=(("add_more", '{"a": 1, "b": 2}'), ("now", "{}")),
    ),
    # Llama 3
    Case("llama3", '{"name": "add", "parameters": {"a": 1}}', calls=ADD),
    Case("llama3", ' {"type": "function", "name": "add", "parameters": {"a": 1}}\n', calls=ADD),
    Case("llama3", '{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 1}}', calls=ADD * 2),
    Case("llama3", '<|python_tag|>{"name": "add", "parameters": {"a": 1}}', calls=ADD),
    Case("llama3", '<|python_tag|>weather.call(city="Oslo")', calls=(("weather", '{"city": "Oslo"}'),)),
    Case("llama3", '<|python_tag|>print("hi")\n', calls=(("python", '{"code": "print(\\"hi\\")\\n"}'),)),
    # Mistral
    Case(
        "mistral",
        '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]',
        calls=ADD,
        ids=("123456789",),
    ),
    Case("mistral", f'{HI}[TOOL_CALLS] [{{"name": "add", "arguments": {{"a": 1}}}}]', HI, calls=ADD),
    Case("mistral-args", '[TOOL_CALLS]add[ARGS]{"a": 1}', calls=ADD),
    Case("mistral-args", f'{HI}[TOOL_CALLS]add[ARGS]{{"a": 1}}', HI, calls=ADD),
    Case(
        "mistral-args",
        '[TOOL_CALLS]add[CALL_ID]000000001[ARGS]{"a": 1}[TOOL_CALLS]add_more[CALL_ID]000000002[ARGS]{"a": 1, "b": 2}',
        calls=TWO,
        ids=("000000001", "000000002"),
    ),
    Case(
        "mistral-args",
        '[THINK]so [TOOL_CALLS]add[ARGS]{"a": 1}[/THINK][TOOL_CALLS]add[ARGS]{"a": 1}',
        reasoning='so [TOOL_CALLS]add[ARGS]{"a": 1}',
        calls=ADD,
    ),
    Case("mistral-args", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "123456789"}]', calls=ADD),
    # DeepSeek
    Case("deepseek", f"{THOUGHT}</think>{HI}", HI, THOUGHT, thinking=True),
    Case(
        "deepseek",
        f'</think>{DS[0]}{DS[1]}function{DS[2]}add\n```json\n{{"a": 1}}```{DS[3]}{DS[4]}',
        calls=ADD,
        thinking=True,
    ),
    Case(
        "deepseek",
        f'{DS[0]}{DS[1]}function{DS[2]}add\n```json\n{{"a": 1}}\n```{DS[3]}\n{DS[1]}function{DS[2]}add_more\n'
        f'```json\n{{"a": 1, "b": 2}}\n```{DS[3]}{DS[4]}',
        calls=TWO,
    ),
    Case("deepseek", f'{DS[1]}function{DS[2]}add\n```json\n{{"a": 1}}\n```{DS[3]}', calls=ADD),
    Case("deepseek-v3.1", f'{DS[0]}{DS[1]}add{DS[2]}{{"a": 1}}{DS[3]}{DS[4]}', calls=ADD),
    Case(
        "deepseek-v3.1",
        f'{THOUGHT}</think>{HI}{DS[0]}{DS[1]}add{DS[2]}{{"a": 1}}{DS[3]}'
        f'{DS[1]}add_more{DS[2]}{{"a": 1, "b": 2}}{DS[3]}{DS[4]}',
        HI,
        THOUGHT,
        TWO,
        thinking=True,
    ),
    Case(
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
        calls=ADD,
        ids=("functions.add:0",),
    ),
    # Gemma
    Case("functiongemma", "<start_function_call>call:add{a:1}<end_function_call>", calls=ADD),
    Case(
        "functiongemma",
        "<start_function_call>call:put{value:<escape>a, {b}: c<escape>,tags:[<escape>x<escape>,<escape>y<escape>]}"
        "<end_function_call><start_function_call>call:now{}<end_function_call>",
        calls=(("put", '{"value": "a, {b}: c", "tags": ["x", "y"]}'), ("now", "{}")),
    ),
    Case(
        "gemma4", '<|tool_call>call:weather{city:<|"|>Oslo<|"|>}<tool_call|>', calls=(("weather", '{"city": "Oslo"}'),)
    ),
    Case("gemma", "Sure.\n```tool_code\nadd(a=1)\n```", "Sure.\n", calls=ADD),
    Case("gemma", "```tool_code\nprint(add(1))\nx = add_more(1, b=2)\n```", calls=TWO),
    Case("gemma", '```json\n{"name": "add", "parameters": {"a": 1}}\n```', calls=ADD),
    Case("gemma", '```json\n{"amount": 1}\n```', '```json\n{"amount": 1}\n```'),
    Case("lfm2", "<|tool_call_start|>[add(a=1), add_more(a=1, b=2)]<|tool_call_end|>", calls=TWO),
    # Others
    Case(
        "deepseek-v3.2",
        f'{THOUGHT}</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="put">\n<｜DSML｜parameter name="value" '
        'string="true">1</｜DSML｜parameter>\n<｜DSML｜parameter name="more" string="false">{"x": [1]}'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        reasoning=THOUGHT,
        calls=(("put", '{"value": "1", "more": {"x": [1]}}'),),
        thinking=True,
    ),
    Case(
        "minimax-m1",
        '<tool_calls>\n{"name": "add", "arguments": {"a": 1}}\n{"name": "add_more", "arguments": {"a": 1, "b": 2}}\n'
        "</tool_calls>",
        calls=TWO,
    ),
    Case("apriel", '<tool_calls>[{"name": "add", "arguments": {"a": 1}}]</tool_calls>', calls=ADD),
    Case("gigachat", '<|function_call|>{"name": "add", "arguments": {"a": 1}}', calls=ADD),
    Case("functionary", '<function=add>{"a": 1}</function>', calls=ADD),
    Case("firefunction", ' functools[{"name": "add", "arguments": {"a": 1}}]', " ", calls=ADD),
    Case("nemotron", '<TOOLCALL>[{"name": "add", "arguments": {"a": 1}}]</TOOLCALL>', calls=ADD),
    Case("granite", '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]', calls=ADD),
    Case(
        "command",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1}}\n]<|END_ACTION|>',
        calls=ADD,
        ids=("0",),
    ),
    Case("generic", '{"name": "add", "arguments": {"a": 1}}', calls=ADD),
    Case("generic", f"{HI}\n{HERMES_ADD}", f"{HI}\n", calls=ADD),
    # gpt-oss
    Case("harmony", f"<|channel|>final<|message|>{HI}", HI),
    Case("harmony", f"<|channel|>commentary<|message|>{HI}", HI),
    Case(
        "harmony",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{HI}",
        HI,
        THOUGHT,
    ),
    Case("harmony", ' to=functions.add<|channel|>analysis<|message|>{"a": 1}', calls=ADD),
    Case("harmony", '<|channel|>analysis to=functions.add<|message|>{"a": 1}', calls=ADD),
    Case("harmony", ' to=functions.add<|channel|>analysis <|constrain|>json<|message|>{"a": 1}', calls=ADD),
    Case("harmony", '<|channel|>commentary to=functions.add<|message|>{"a": 1}', calls=ADD),
    Case(
        "harmony",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary to=functions.add "
        '<|constrain|>json<|message|>{"a": 1}<|call|>',
        reasoning=THOUGHT,
        calls=ADD,
    ),
    Case(
        "harmony",
        f"<|channel|>commentary to=assistant<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
        f"<|channel|>commentary to=assistant<|channel|>final<|message|>{HI}",
        HI,
        THOUGHT,
    ),
    Case("harmony", '<|channel|>final <|constrain|>json<|message|>{"x": 1}', '{"x": 1}'),
    Case("harmony", HI, HI),
    Case(
        "harmony",
        "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)",
        "<|channel|>commentary to=python <|constrain|>code<|message|>print(1)",
    ),
]
