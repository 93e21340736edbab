"""Calls in a shape other than the template's own: they must name an offered tool with arguments that fit."""

import json
from typing import Any

import pytest
from chat_cases import TOOLS, collected, events, tool
from hypothesis import given, settings
from hypothesis import strategies as st

from llamina.chat import FORMATS, CallArguments, CallBegin, CallEnd, ChatEvent, Content, Parser, Tools

CALL = '{"name": "weather", "arguments": {"city": "Oslo"}}'
ARGUMENTS = '{"city": "Oslo"}'
FENCED = f"```json\n{CALL}\n```"
PLAIN = [name for name, format in FORMATS.items() if not format.messages]

CALLS = [
    FENCED,
    f"```json {CALL} ```",
    f"```json\n{CALL}",  # the answer ended before the fence was closed
    f"```\n{CALL}\n```",
    f"```tool_call\n{CALL}```",
    f"```json\n[{CALL}]\n```",
    "```json\n" + json.dumps(json.loads(CALL), indent=2) + "\n```",
    CALL,
    f"\n\n  {CALL}",
    f"[{CALL}]",
    CALL.replace("arguments", "parameters"),
    '{"arguments": {"city": "Oslo"}, "name": "weather"}',
    '{"type": "function", "name": "weather", "arguments": {"city": "Oslo"}}',
    '{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}',
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"<tool_call>{CALL}",
    f"<function_call>{CALL}</function_call>",
    f"<tools>\n{CALL}\n</tools>",
]


@pytest.mark.parametrize("answer", CALLS)
@pytest.mark.parametrize("name", PLAIN)
def test_other_shapes_are_calls(name: str, answer: str) -> None:
    for pieces in ([answer], list(answer)):
        found = collected(events(FORMATS[name], pieces))
        assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == [("weather", {"city": "Oslo"})]
        assert found.text.strip() == ""


def test_text_around_them() -> None:
    """Before and after; a line of JSON, a fence, one call after the other."""
    for shape in (FENCED, CALL):
        answer = f"I will look it up.\n{shape}\nOne moment."
        found = collected(events(FORMATS["hermes"], [answer]))
        assert found.text.split() == ["I", "will", "look", "it", "up.", "One", "moment."] and len(found.tool_calls) == 1
    found = collected(events(FORMATS["hermes"], [f"{FENCED}\n{CALL}\n<tool_call>{CALL}</tool_call>"]))
    assert len(found.tool_calls) == 3 and found.text == ""
    found = collected(events(FORMATS["qwen3-coder"], [f"<think>{CALL}</think>{CALL}"]))
    assert found.reasoning == CALL and len(found.tool_calls) == 1
    code = "```python\nprint(1)\n```\n"
    found = collected(events(FORMATS["hermes"], [code + FENCED]))
    assert found.text == code and len(found.tool_calls) == 1


NEAR_MISSES = [
    FENCED.replace("weather", "climate"),
    FENCED.replace("weather", "Weather"),
    FENCED.replace("city", "town"),
    FENCED.replace('"Oslo"', "1"),
    FENCED.replace('{"city": "Oslo"}', "{}"),
    FENCED.replace('{"city": "Oslo"}', '{"city": "Oslo", "unit": "C"}'),
    FENCED.replace('{"city": "Oslo"}', '["Oslo"]'),
    FENCED.replace("}}", "}, }"),
    FENCED.replace("}}", '}, "why": 1}'),
    FENCED.replace("```json", "```python"),
    FENCED.replace("```json", "```json5"),
    f"```json\n{CALL} // like this\n```",
    f"```json\n{CALL}\n{CALL.replace('city', 'town')}\n```",
    f"```text\n{CALL}\n```",
    '```json\n{"amount": 1, "name": "weather"}\n```',
    '```json\n{"name": "weather"}\n```',
    '```json\n{"name": "weather", "arguments": {"city": "Osl',
    '```json\n["name", "weather"]\n```',
    "```json\n{}\n```",
    CALL.replace("weather", "climate"),
    CALL.replace("city", "town"),
    CALL[:-1],
    f"So: {CALL}",
    f"[1] {CALL}",
    '{"name": "Oslo", "arguments": 3}',
    '{\n  "city": "Oslo"\n}',
    "<function_call>" + CALL.replace("city", "town") + "</function_call>",
    "<tools>" + CALL.replace("weather", "climate") + "</tools>",
    "<function_call>weather(city='Oslo')</function_call>",
    "A list:\n[x] one\n{y} two\n",
]


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_near_misses_are_content(answer: str) -> None:
    for pieces in ([answer], list(answer), [answer[i : i + 3] for i in range(0, len(answer), 3)]):
        for name in ("hermes", "mistral", "lfm2"):
            assert events(FORMATS[name], pieces) == [Content(answer)]


def test_only_where_tools_are_offered() -> None:
    for answer in CALLS:
        assert collected(events(FORMATS["hermes"], [answer], tools=Tools())).text == answer
        assert collected(events(FORMATS["mistral"], [answer], tools=Tools([tool("add")]))).text == answer


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(PLAIN),
    st.lists(st.sampled_from([*CALLS, *NEAR_MISSES, "\n", " ", "Hm. "]), max_size=4).map("".join),
    st.lists(st.integers(1, 12), min_size=1, max_size=30),
)
def test_pieces_of_any_size(name: str, answer: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    while at < len(answer):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(answer[at : at + size])
        at += size
    whole = events(FORMATS[name], [answer])
    assert events(FORMATS[name], pieces) == whole


def waits(pieces: list[str], tools: Tools = TOOLS) -> list[list[ChatEvent]]:
    """The events after each piece."""
    parser = Parser(FORMATS["hermes"], tools, new_id=lambda: "x")
    return [parser.push(piece) for piece in pieces]


def test_held_back_while_it_may_become_a_call_and_no_longer() -> None:
    assert waits(["Hi", "\n", "there"]) == [[Content("Hi")], [], [Content("\nthere")]]
    assert waits(["```", "py"]) == [[], [Content("```py")]]
    assert waits(["```json\n", '{"na', 'me": "w', 'x"']) == [[], [], [], [Content('```json\n{"name": "wx"')]]
    assert waits(['{"a', "m"]) == [[], [Content('{"am')]]
    begin = '{"name": "edit", "arguments": {"file": "a", '
    assert waits([begin, '"old": 1', ","]) == [[], [], [Content(begin + '"old": 1,')]]
    assert waits([CALL[:-1], "}", "!"])[1:] == [
        [CallBegin(0, "x", "weather"), CallArguments(0, ARGUMENTS), CallEnd(0)],
        [Content("!")],
    ]


SCHEMAS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"type": "string", "enum": ["C", "F"]}, ["C"], ["K", 1]),
    ({"type": "integer", "minimum": 1, "maximum": 9}, [1, 9, 2.0], [0, 10, 1.5, True, "1"]),
    ({"type": "array", "items": {"type": "number"}, "maxItems": 2}, [[], [1, 2.5]], [["a"], [1, 2, 3]]),
    ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/name"}]}, [None, "ab"], ["", 1]),
    ({"type": "string", "pattern": "^a+$"}, ["aa"], ["ab"]),
    ({"type": "string", "pattern": "("}, [], ["a"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS, ids=str)
def test_arguments_must_fit(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    definition = tool("put", value=schema)
    definition["parameters"]["$defs"] = {"name": {"type": "string", "minLength": 1}}
    for value, is_call in [*((value, True) for value in good), *((value, False) for value in bad)]:
        answer = json.dumps({"name": "put", "arguments": {"value": value}})
        found = collected(events(FORMATS["hermes"], [answer], tools=Tools([definition])))
        assert [call.name for call in found.tool_calls] == ["put"] * is_call
