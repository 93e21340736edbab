"""Conversations with tools and reasoning, through the engine."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from llamina import Engine, Request
from llamina.chat import CallBegin, CallEnd, Content, Reasoning
from llamina.engine import Sequence
from llamina.engine.output import Output
from llamina.errors import RequestError

ASK = [{"role": "user", "content": "What is the capital of Japan?"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 60}
ADD = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}

CITY = {
    "name": "city",
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["Tokyo", "Oslo"]}},
        "required": ["name"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def scripted(smol: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Answers that the model gives, one after the other, whatever its logits are."""
    answers: list[str] = []
    prepare = smol.core.prepare

    def say(request: Request, leader: Sequence | None = None) -> Sequence:
        assert smol.tokenizer.eos is not None
        tokens = iter([*smol.encode(answers.pop(0), add_special=False), smol.tokenizer.eos])
        sequence = prepare(replace(request, logprobs=0), leader)  # so that no device samples
        sequence.sample = lambda logits: [next(tokens)]  # type: ignore[method-assign]
        return sequence

    monkeypatch.setattr(smol.core, "prepare", say)
    yield answers
    assert not answers


def test_an_answer_without_tools_is_text(smol: Engine) -> None:
    result = smol.chat(ASK, logprobs=0, **GREEDY)
    assert result.logprobs and len(result.logprobs) == len(result.tokens)
    assert "Tokyo" in result.text and not result.tool_calls and not result.reasoning
    told = [event for delta in smol.stream_chat(ASK, **GREEDY) for event in delta.events]
    assert all(isinstance(event, Content) for event in told) and len(told) > 3
    assert result.message() == {"role": "assistant", "content": result.text}


def test_calls_and_reasoning(smol: Engine, scripted: list[str]) -> None:
    scripted += ['<think>hm</think>So: <tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'] * 2
    turn = smol.stream_chat(ASK, tools=[ADD], **GREEDY)
    kinds = [type(event) for delta in turn for event in delta.events]
    assert kinds[0] is Reasoning and kinds[-1] is CallEnd and CallBegin in kinds and Content in kinds
    result = smol.chat(ASK, tools=[ADD], **GREEDY)
    assert (result.reasoning, result.text, result.finish_reason) == ("hm", "So: ", "stop")
    (call,) = result.tool_calls
    assert (call.name, call.arguments, len(call.id)) == ("add", '{"a": 1, "b": 2}', 9)
    message = result.message()
    assert message["reasoning_content"] == "hm" and message["tool_calls"] == [call.message()]
    assert result.tokens == turn.result().tokens


def test_no_tools_no_calls(smol: Engine, scripted: list[str]) -> None:
    said = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    scripted += [said, said, "<think>hm</think>x"]
    assert smol.chat(ASK, **GREEDY).text == said
    assert smol.chat(ASK, tools=[ADD], tool_choice="none", **GREEDY).text == said
    assert smol.chat(ASK, reasoning=False, **GREEDY).text == "<think>hm</think>x"


def test_the_tools_are_in_the_prompt(smol: Engine) -> None:
    turn = smol.stream_chat(ASK, tools=[ADD], **GREEDY)
    prompt = smol.tokenizer.decode(turn.generation.sequence.request.prompt, skip_special=False)
    turn.close()
    assert '{"name": "add", "parameters": {"type": "object"' in prompt


def test_markers_that_are_control_tokens(smol: Engine, scripted: list[str]) -> None:
    """They are not part of the text, but the parser sees them."""
    assert all(smol.tokenizer.is_special(smol.tokenizer.vocabulary.ids[m]) for m in ("<file_sep>", "<repo_name>"))
    said = '<file_sep>{"name": "add", "arguments": {}}<repo_name>'
    scripted += [said, said]
    assert smol.chat(ASK, **GREEDY).text == '{"name": "add", "arguments": {}}'
    result = smol.chat(ASK, tools=[ADD], format=("<file_sep>", "<repo_name>"), **GREEDY)
    assert result.text == "" and [call.name for call in result.tool_calls] == ["add"]


def test_output_shows_markers(smol: Engine) -> None:
    tokens = smol.encode("a<file_sep>b<repo_name>", add_special=False)
    for markers, text in (((), "ab"), (("<file_sep>", "<nonsense>"), "a<file_sep>b")):
        output = Output((), markers)
        output.begin(smol.tokenizer, ignore_eos=False)
        assert "".join(map(output.push, tokens)) + output.finish() == text


def test_functions_are_called_until_none_is_needed(smol: Engine, scripted: list[str]) -> None:
    asked: list[tuple[int, int]] = []

    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        asked.append((a, b))
        return a + b

    scripted += [
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
        '<tool_call>{"name": "add", "arguments": {"a": "x"}}</tool_call>',
        '{"name": "add", "arguments": {"a": 3, "b": 4}}',
        "It is 7.",
    ]
    run = smol.run_tools(ASK, [add], **GREEDY)
    assert (run.result.text, run.rounds, asked) == ("It is 7.", 2, [(1, 2), (3, 4)])
    assert [m["role"] for m in run.messages] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert run.messages[2]["content"] == "3" and run.messages[3]["content"].startswith(
        "error: the arguments do not fit"
    )
    assert run.messages[2]["tool_call_id"] == run.messages[1]["tool_calls"][0]["id"]


def test_rounds_have_an_end(smol: Engine, scripted: list[str]) -> None:
    def again() -> str:
        return "again"

    scripted += ['<tool_call>{"name": "again"}</tool_call>'] * 3
    run = smol.run_tools(ASK, [again], max_rounds=2, **GREEDY)
    assert run.rounds == 2 and run.result.tool_calls and run.messages[-1]["role"] == "assistant"
    with pytest.raises(RequestError, match="max_rounds is 0"):
        smol.run_tools(ASK, [again], max_rounds=0)


@pytest.mark.parametrize(
    "format", [None, "qwen3-coder", "llama3", "functiongemma", "harmony", ("<file_sep>", "<repo_name>")]
)
def test_a_call_can_be_required(smol: Engine, format: Any) -> None:
    """The model, small as it is, calls what it must; the markers may be control tokens."""
    result = smol.chat(ASK, tools=[ADD, CITY], tool_choice="required", format=format, **GREEDY)
    (call,) = result.tool_calls
    assert call.name in ("add", "city") and (result.text, result.finish_reason) == ("", "stop")
    named: Any = {"type": "function", "function": {"name": "add"}}
    turn = smol.stream_chat(ASK, tools=[ADD, CITY], tool_choice=named, format=format, **GREEDY)
    events = [event for delta in turn for event in delta.events]
    assert [event.name for event in events if isinstance(event, CallBegin)] == ["add"]
    arguments = json.loads(turn.result().tool_calls[0].arguments)
    assert arguments.keys() == {"a", "b"} and all(isinstance(value, int) for value in arguments.values())


def test_a_required_function_is_called_once(smol: Engine) -> None:
    asked = []

    def capital(country: Literal["Japan", "Peru"]) -> str:
        """The capital of a country."""
        asked.append(country)
        return {"Japan": "Tokyo", "Peru": "Lima"}[country]

    run = smol.run_tools(ASK, [capital], tool_choice="required", max_rounds=1, temperature=0, max_tokens=100)
    assert asked == [json.loads(run.messages[1]["tool_calls"][0]["function"]["arguments"])["country"]]
    assert run.rounds == 1 and run.messages[2] == {
        "role": "tool",
        "tool_call_id": run.messages[1]["tool_calls"][0]["id"],
        "name": "capital",
        "content": "Tokyo" if asked == ["Japan"] else "Lima",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tool_choice": "sometimes", "tools": [ADD]}, "auto, none, required or"),
        ({"tool_choice": {"function": {"name": "sub"}}, "tools": [ADD]}, "the tools are add"),
        ({"format": "nonsense"}, "known are generic"),
        ({"reasoning": "think"}, "two markers"),
        ({"nonsense": 1}, "unknown option nonsense"),
    ],
    ids=str,
)
def test_refusals(smol: Engine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        smol.chat(ASK, **options)
