"""Content, reasoning and calls found in answers, however the text comes."""

from itertools import pairwise

import pytest
from chat_cases import CASES, TOOLS, Case, collected, events
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llamina.chat import FORMATS, CallArguments, CallBegin, CallDropped, CallEnd, Content, Reasoning, Tools, choose
from llamina.errors import RequestError


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_found(case: Case) -> None:
    found = collected(case.events())
    assert (found.text, found.reasoning) == (case.text, case.reasoning)
    assert tuple((call.name, call.arguments) for call in found.tool_calls) == case.calls
    if case.ids is not None:
        assert tuple(call.id for call in found.tool_calls) == case.ids


@pytest.mark.parametrize("case", CASES, ids=str)
def test_character_by_character(case: Case) -> None:
    assert case.events(list(case.answer)) == case.events()


def split(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


PARTS = sorted(
    {marker for format in FORMATS.values() for marker in format.markers}
    | {'{"name": "add", ', '"arguments": ', '{"a": 1}', "}", "add", "\n", " ", "x", "[", "]", ",", ";", "call:add{a:1}"}
    | {
        "add(a=1)",
        "<function=add>",
        "<parameter=a>",
        "1",
        "</parameter>",
        "</function>",
        '{"a": [1, "',
        "\\",
        "functools",
        "```json\n",
        "```",
        '"name": "weather"',
        "{",
        '\n{"name": "weather", "arguments": {"city": "Oslo"}}',
        '"city": ',
        '"Oslo"',
        "<function_call>",
    }
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.one_of(st.sampled_from([c.answer for c in CASES]), st.lists(st.sampled_from(PARTS), max_size=12).map("".join)),
    st.one_of(st.sampled_from([c.answer for c in CASES]), st.just("")),
    st.lists(st.integers(0, 10_000), max_size=20),
    st.booleans(),
)
def test_any_text_in_any_pieces(name: str, one: str, two: str, cuts: list[int], thinking: bool) -> None:
    """The events are those of the whole text, and each call that begins is ended or dropped."""
    text = one + two
    whole = events(FORMATS[name], [text], thinking)
    assert events(FORMATS[name], split(text, cuts), thinking) == whole
    assert events(FORMATS[name], list(text), thinking) == whole
    open_calls: set[int] = set()
    for event in whole:
        match event:
            case CallBegin(index):
                assert not open_calls
                open_calls.add(index)
            case CallArguments(index):
                assert open_calls == {index}
            case CallEnd(index) | CallDropped(index):
                open_calls.remove(index)
    assert not open_calls


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.text())
def test_what_is_no_marker_is_content(name: str, text: str) -> None:
    assume(not any(marker in text for marker in FORMATS[name].markers))
    assert collected(events(FORMATS[name], [text])).text == text


def test_nothing_waits_that_need_not() -> None:
    """Text is told at once, and arguments while they are being made."""
    from llamina.chat import Parser

    parser = Parser(FORMATS["hermes"], TOOLS, new_id=lambda: "x")
    assert parser.push("Hi <b>, 1 < 2") == [Content("Hi <b>, 1 < 2")]
    assert parser.push(" and <tool") == [Content(" and ")]
    assert parser.push("box>") == [Content("<toolbox>")]
    assert parser.push('<tool_call>\n{"name": "wea') == []
    assert parser.push('ther", "arguments": {"ci') == [CallBegin(0, "x", "weather"), CallArguments(0, '{"ci')]
    assert parser.push('ty": "Os') == [CallArguments(0, 'ty": "Os')]
    assert parser.push('lo"}}') == [CallArguments(0, 'lo"}'), CallEnd(0)]
    assert parser.push("\n</tool_call>") == [] and parser.finish() == []

    parser = Parser(FORMATS["qwen3-coder"], TOOLS, new_id=lambda: "x")
    told = parser.push("<tool_call>\n<function=python>\n<parameter=code>\nprint(")
    assert told == [CallBegin(0, "x", "python"), CallArguments(0, '{"code": "print(')]

    parser = Parser(FORMATS["hermes"])
    assert parser.push("<think>so ") == [Reasoning("so")]
    assert parser.push("what</th") == [Reasoning(" what")]


BROKEN = [
    ("hermes", '<tool_call>\n{"name": "add", "arguments": {"a": oops}}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "add", "arguments": {"a": 1'),
    ("hermes", '<tool_call>\n{"name": "add", "argum'),
    ("hermes", "<tool_call>\nadd(1)\n</tool_call>"),
    ("hermes", '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 01}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": "\n"}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": "\\x"}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "a b", "arguments": {"a": 1}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": ' + "[" * 300 + "]" * 300 + "}}</tool_call>"),
    ("qwen3-coder", "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</tool_call>"),
    ("qwen3-coder", "<tool_call>\n<function=python>\n<parameter=code>\nx = 1"),
    ("qwen3-coder", "<tool_call>\nhm</tool_call>"),
    ("glm", "<tool_call>add <arg_key>a</arg_key>1</tool_call>"),
    ("llama3", '{"name": "unknown", "parameters": {"a": 1}}'),
    ("llama3", '{"name": "add"}'),
    ("llama3", '  {"amount": 1.5} is the answer'),
    ("llama3", '{"name": "add", "parameters": {"a": 1}'),
    ("llama3", '; {"a'),
    ("llama3", "<|python_tag|>"),
    ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}'),
    ("mistral-args", "[TOOL_CALLS]add"),
    ("mistral-args", "[TOOL_CALLS]add[ARGS]1"),
    ("mistral-args", "[TOOL_CALLS]" + "long " * 100 + "[ARGS]{}"),
    ("deepseek", "<｜tool▁calls▁begin｜>nothing<｜tool▁calls▁end｜>"),
    ("deepseek-v3.1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"),
    ("functiongemma", "<start_function_call>call:add{a:x}<end_function_call>"),
    ("functiongemma", "<start_function_call>call:add{a:1"),
    ("functiongemma", "<start_function_call>call:add{a:" + "[" * 300 + "<end_function_call>"),
    ("gemma", "```tool_code\nimport os\n```"),
    ("gemma", "```tool_code\nunknown(a=1)\n```"),
    ("gemma", "```tool_code\nadd(a=b)\n```"),
    ("gemma", "```tool_code\nadd(1, 2)\n```"),
    ("gemma", "```tool_code\nadd(" + "(" * 5000 + "\n```"),
    ("generic", '```json\n{"name": "add"}\n```'),
    ("harmony", "<|channel|>commentary to=functions.add<|message|>1"),
    ("harmony", "<|channel|>commentary to=functions.add<|mess"),
]


@pytest.mark.parametrize(("name", "text"), BROKEN, ids=lambda v: v[:30])
def test_what_is_no_call_is_content(name: str, text: str) -> None:
    for pieces in ([text], list(text)):
        found = collected(events(FORMATS[name], pieces))
        assert (found.text, found.tool_calls) == (text, [])


def test_a_good_call_after_a_broken_one() -> None:
    good = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    found = collected(events(FORMATS["hermes"], [f"<tool_call>hm {good} bye"]))
    assert found.text == "<tool_call>hm bye" and [call.name for call in found.tool_calls] == ["add"]
    listed = '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": 1}]'
    found = collected(events(FORMATS["mistral"], [listed]))
    assert found.text == ', {"name": 1}]' and len(found.tool_calls) == 1


def test_without_tools_there_are_no_calls() -> None:
    for case in CASES:
        if case.format != "harmony" and not case.reasoning and not case.thinking:
            told = events(FORMATS[case.format], [case.answer], tools=Tools())
            assert told == [Content(case.answer)]


def test_reasoning_may_stay_in_the_text() -> None:
    for answer in (
        "<think>a</think>b",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
    ):
        name = "harmony" if "channel" in answer else "hermes"
        found = collected(events(choose("", name, reasoning=False), [answer]))
        assert found.text == answer.replace("<|start|>assistant<|channel|>final<|message|>", "") and not found.reasoning


def test_markers_of_ones_own() -> None:
    format = choose("", ("<<", ">>"), ("(", ")"))
    found = collected(events(format, ['(hm) so <<{"name": "add", "arguments": {"a": 1}}>>']))
    assert (found.text, found.reasoning) == ("so ", "hm") and found.tool_calls[0].arguments == '{"a": 1}'
    with pytest.raises(RequestError, match="two markers"):
        choose("", ("<<",))
    with pytest.raises(RequestError, match=r"known are generic, hermes"):
        choose("", "nonsense")


def test_no_marker_hides_another() -> None:
    """The parser takes the first marker it sees: none may be the beginning of another."""
    for format in FORMATS.values():
        opens = [opened for style in format.styles for opened in style.opens]
        assert not [(a, b) for a in opens for b in opens if a != b and b.startswith(a)], format.name


@pytest.mark.parametrize(
    "tools",
    [[{"type": "web"}], [{"name": ""}], [{"name": "a", "parameters": 1}], [{"name": "a"}, {"name": "a"}], [1]],
    ids=str,
)
def test_tools_that_are_none(tools: list[dict[str, object]]) -> None:
    with pytest.raises(RequestError) as error:
        Tools(tools)
    assert error.value.param == "tools"
