"""Tools and thinking with Anthropic's official client, and with models that say what they are told to."""

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, ToolUseBlock
from anthropic_objects import GREEDY, QUESTION, WEATHER, begun_blocks, official_client, raw_events, strict
from live_server import Live, Scripted, done, said
from pydantic import BaseModel

from llamina.server.model.frames import CallDelta, Generate


@pytest.fixture(scope="module")
def client(live: Live) -> anthropic.Anthropic:
    return official_client(live)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "get_weather"},
        {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    ],
)
def test_forced_call_and_its_result(client: anthropic.Anthropic, choice: dict[str, Any]) -> None:
    other = {"name": "other", "input_schema": {"type": "object", "properties": {}}}
    tools = [WEATHER] if choice["type"] == "any" else [other, WEATHER]
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Paris?"}]
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 100, "tools": tools, "extra_body": GREEDY}
    with client.messages.stream(messages=messages, tool_choice=choice, **asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    (call,) = message.content
    assert isinstance(call, ToolUseBlock) and (call.name, message.stop_reason) == ("get_weather", "tool_use")
    assert len(pieces) == 1 and json.loads(pieces[0]) == call.input
    assert set(call.input) == {"city"} and call.id.startswith("toolu_")
    whole = client.messages.create(messages=messages, tool_choice=choice, **asked)
    assert whole.content[0].input == call.input

    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny, 21 °C"}]}
    messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(messages=messages, tool_choice={"type": "none"}, **asked)
    assert answer.content[0].type == "text" and answer.stop_reason in ("end_turn", "max_tokens")


def test_arguments_as_they_are_made(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {
        "model": "smollm2",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "extra_body": GREEDY,
    }
    beta = {"anthropic-beta": "fine-grained-tool-streaming-2025-05-14"}
    ways: list[dict[str, Any]] = [
        {"tools": [WEATHER | {"eager_input_streaming": True}]},
        {"tools": [WEATHER], "extra_headers": beta},
    ]
    for way in ways:
        with client.messages.stream(**asked, **way) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            message = stream.get_final_message()
        assert len(pieces) > 2 and json.loads("".join(pieces)) == message.content[0].input


def test_no_tool_is_called(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model="smollm2", max_tokens=20, messages=QUESTION, tools=[WEATHER], tool_choice={"type": "none"}
    )
    assert [block.type for block in message.content] == ["text"]


def test_structured_output(client: anthropic.Anthropic) -> None:
    class City(BaseModel):
        name: str
        large: bool

    message = client.messages.parse(
        model="smollm2", max_tokens=200, messages=QUESTION, output_format=City, extra_body=GREEDY
    )
    assert isinstance(message.parsed_output, City)


def test_schema_with_nulls(client: anthropic.Anthropic) -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "properties": None, "required": None}}
    found = client.messages.count_tokens(model="smollm2", messages=QUESTION, tools=[tool])
    assert found.input_tokens > client.messages.count_tokens(model="smollm2", messages=QUESTION).input_tokens


def test_choices_for_the_engine(live: Live) -> None:
    model = live.adopt("choices", lambda: Scripted([done()]))
    body = {"model": "choices", "max_tokens": 2000, "messages": QUESTION, "tools": [WEATHER | {"strict": True}]}
    asked = [
        body | {"tool_choice": {"type": "auto"}},
        body | {"tool_choice": {"type": "any"}},
        body | {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        body | {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5, "top_p": 0.5},
        body | {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        body | {"thinking": {"type": "disabled"}},
    ]
    for request in asked:
        assert live.post("/v1/messages", request).status_code == 200
    assert isinstance(model, Scripted)
    options = [frame.options for frame in model.asked if isinstance(frame, Generate)]
    assert [given.get("tool_choice") for given in options[:3]] == ["auto", "required", "required"]
    assert [given.get("parallel_tool_calls") for given in options[:3]] == [False, True, False]
    assert [given.get("template_options") for given in options[2:]] == [
        None,
        {"enable_thinking": True},
        {"enable_thinking": True, "reasoning_effort": "high"},
        {"enable_thinking": False},
    ]
    assert (options[3]["top_k"], options[3]["top_p"], options[3]["max_tokens"]) == (5, 0.5, 2000)
    assert options[0]["tools"][0]["function"]["strict"] is True


def test_one_call_ends_an_answer_that_may_call_one(live: Live) -> None:
    calls = [
        said(calls=[CallDelta(0, "aaa", "f"), CallDelta(0, arguments='{"x":')]),
        said(calls=[CallDelta(0, arguments="1}"), CallDelta(1, "bbb", "f")]),
        said(calls=[CallDelta(1, arguments="{}")]),
        done(),
    ]
    model = live.adopt("twice", lambda: Scripted(calls))
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = {"model": "twice", "max_tokens": 9, "messages": QUESTION, "tools": tools}
    assert [block["input"] for block in live.post("/v1/messages", body).json()["content"]] == [{"x": 1}, {}]
    one = body | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    message = strict(Message, live.post("/v1/messages", one).content)
    assert [block.input for block in message.content] == [{"x": 1}] and message.stop_reason == "tool_use"
    assert raw_events(live, one)[-2].delta.stop_reason == "tool_use"
    assert isinstance(model, Scripted) and model.cancelled == 2


def test_arguments_come_as_the_model_wrote_them(live: Live) -> None:
    written = r'{"x": "\ud83d", "n": 1e999}'  # JSON that not every decoder takes
    live.adopt("odd", lambda: Scripted([said(calls=[CallDelta(0, "a", "f"), CallDelta(0, arguments=written)]), done()]))
    response = live.post("/v1/messages", {"model": "odd", "max_tokens": 9, "messages": QUESTION})
    assert response.status_code == 200 and written in response.text
    answer = live.post("/api/chat", {"model": "odd", "messages": QUESTION, "stream": False})
    assert answer.status_code == 200 and written in answer.text


def test_what_is_no_call_is_text(live: Live) -> None:
    chunks = [
        said(calls=[CallDelta(0, "aaa", "f"), CallDelta(0, arguments='{"x":')]),
        done("length", calls=[CallDelta(0, dropped=True)], text='<tool_call>{"x":'),
    ]
    live.adopt("broken", lambda: Scripted(chunks))
    body = {"model": "broken", "max_tokens": 1, "messages": QUESTION}
    message = strict(Message, live.post("/v1/messages", body).content)
    assert [block.type for block in message.content] == ["text"] and message.stop_reason == "max_tokens"
    assert begun_blocks(raw_events(live, body)) == [(0, "text")]
    eager = body | {"tools": [{"name": "f", "input_schema": {"type": "object"}, "eager_input_streaming": True}]}
    assert begun_blocks(raw_events(live, eager)) == [(0, "tool_use"), (1, "text")]  # it was told before it broke off


def test_text_around_calls(live: Live) -> None:
    chunks = [
        said(text="First.", calls=[CallDelta(0, "aaa", "f")]),
        said(calls=[CallDelta(0, arguments="{}"), CallDelta(1, "bbb", "g"), CallDelta(1, dropped=True)]),
        said(text="Then."),
        said(calls=[CallDelta(2, "ccc", "h"), CallDelta(2, arguments="{}")]),
        done(),
    ]
    live.adopt("chatty", lambda: Scripted(chunks))
    events = raw_events(live, {"model": "chatty", "max_tokens": 9, "messages": QUESTION})
    assert begun_blocks(events) == [(0, "text"), (1, "tool_use"), (2, "text"), (3, "tool_use")]


# ---- thinking --------------------------------------------------------------------------------------------

THOUGHTS = [said(reasoning="Let me "), said(reasoning="see."), said(text="\n\n"), said(text="Paris."), done()]


def test_thinking_blocks(live: Live, client: anthropic.Anthropic) -> None:
    live.adopt("thinker", lambda: Scripted(THOUGHTS))
    body = {"model": "thinker", "max_tokens": 2000, "messages": QUESTION}
    message = strict(Message, live.post("/v1/messages", body).content)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Let me see." and message.content[0].signature
    assert message.usage.output_tokens_details.thinking_tokens == 2
    deltas = [event.delta.type for event in raw_events(live, body) if event.type == "content_block_delta"]
    assert deltas == ["thinking_delta", "thinking_delta", "signature_delta", "text_delta"]
    with client.messages.stream(**body, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
        assert stream.get_final_message().content[0].thinking == "Let me see."


def test_thinking_that_is_not_shown_comes_back(live: Live) -> None:
    model = live.adopt("silent", lambda: Scripted(THOUGHTS))
    body = {
        "model": "silent",
        "max_tokens": 2000,
        "messages": QUESTION,
        "thinking": {"type": "adaptive", "display": "omitted"},
    }
    content = live.post("/v1/messages", body).json()["content"]
    assert content[0]["thinking"] == "" and "see" not in content[0]["signature"]
    assert [event.type for event in raw_events(live, body)].count("content_block_delta") == 2
    turns = [*QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": "Sure?"}]
    live.post("/v1/messages", body | {"messages": turns})
    assert isinstance(model, Scripted) and isinstance(model.asked[-1], Generate)
    assert model.asked[-1].messages[1]["reasoning_content"] == "Let me see."


def test_tools_that_a_server_would_run_are_left_out(client: anthropic.Anthropic, live: Live) -> None:
    """As Claude Code sends them: the model is offered the client's own, and a header tells of the others."""
    model = live.adopt("scripted", lambda: Scripted([said(text="ok"), done()]))
    assert isinstance(model, Scripted)
    served: list[Any] = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "mcp_toolset"}]
    body = {"model": "scripted", "max_tokens": 20, "messages": QUESTION, "tools": [*served, WEATHER]}
    for stream in (False, True):
        answer = live.post("/v1/messages", body | {"stream": stream})
        assert answer.status_code == 200, answer.text
        told = answer.headers["x-llamina-warnings"]
        assert "web_search_20250305 is left out" in told and "mcp_toolset is left out" in told
        asked = model.asked[-1]
        assert isinstance(asked, Generate)
        assert [tool["function"]["name"] for tool in asked.options["tools"]] == ["get_weather"]
    assert client.messages.count_tokens(model="smollm2", messages=QUESTION, tools=served).input_tokens > 0
    plain = live.post("/v1/messages", body | {"tools": [WEATHER]})
    assert "x-llamina-warnings" not in plain.headers


def test_the_budget_of_thinking_reaches_the_engine(live: Live) -> None:
    model = live.adopt("scripted", lambda: Scripted([said(text="ok"), done()]))
    assert isinstance(model, Scripted)
    body = {"model": "scripted", "max_tokens": 2000, "messages": QUESTION}
    for thinking, budget in (({"type": "enabled", "budget_tokens": 1024}, 1024), ({"type": "adaptive"}, None)):
        assert live.post("/v1/messages", body | {"thinking": thinking}).status_code == 200
        asked = model.asked[-1]
        assert isinstance(asked, Generate) and asked.options.get("reasoning_budget") == budget
