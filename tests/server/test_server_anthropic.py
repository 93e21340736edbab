"""Anthropic's official client against a live server; every object is validated strictly by its own models."""

import asyncio
import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import (
    Message,
    MessageTokensCount,
    RawMessageStreamEvent,
    TextBlock,
    ToolUseBlock,
)
from anthropic.types.shared import ErrorResponse
from live import PATIENCE, Live, Scripted, done, said, wait_for
from pydantic import BaseModel, TypeAdapter

from llamina.server.model.frames import CallDelta, ErrorInfo, Generate

GREEDY = {"temperature": 0}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(live: Live) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0, timeout=PATIENCE)


def known(value: Any, where: str = "$") -> None:
    """Fail for a field that the official models do not have."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{where} has {value.model_extra}"
        for name in type(value).model_fields:
            known(getattr(value, name), f"{where}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            known(item, f"{where}[{i}]")


def strict(kind: Any, data: bytes | str) -> Any:
    found = TypeAdapter(kind).validate_json(data, strict=True)
    known(found)
    return found


def raw_events(live: Live, body: dict[str, Any]) -> list[Any]:
    """The events of a stream as they come over the wire, each validated; pings are left out."""
    events = []
    with httpx.stream("POST", f"{live.url}/v1/messages", json=body | {"stream": True}, timeout=PATIENCE) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["request-id"].startswith("req_")
        for block in response.read().decode().strip().split("\n\n"):
            name, data = (line.split(": ", 1)[1] for line in block.split("\n"))
            assert json.loads(data)["type"] == name
            if name == "ping":
                assert data == '{"type":"ping"}'
            elif name == "error":
                events.append(strict(ErrorResponse, data))
            else:
                events.append(strict(RawMessageStreamEvent, data))
    return events


# ---- messages --------------------------------------------------------------------------------------------


def test_message(live: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 40, "messages": QUESTION, "system": "Be brief.", **GREEDY}
    response = live.post("/v1/messages", body, headers={"anthropic-version": "2023-06-01", "x-api-key": "none"})
    message = strict(Message, response.content)
    assert response.status_code == 200 and response.headers["request-id"].startswith("req_")
    assert isinstance(message.content[0], TextBlock) and "Paris" in message.content[0].text
    assert (message.stop_reason, message.stop_sequence, message.model) == ("end_turn", None, "smollm2")
    assert message.usage.output_tokens > 3


def test_system_as_blocks_is_the_same_prompt(client: anthropic.Anthropic) -> None:
    text = "Be brief."
    blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    counts = [
        client.messages.count_tokens(model="smollm2", messages=QUESTION, system=system).input_tokens
        for system in (text, blocks)
    ]
    assert counts[0] == counts[1] > client.messages.count_tokens(model="smollm2", messages=QUESTION).input_tokens - 20


def test_beta_client(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(
        model="smollm2",
        max_tokens=5,
        messages=QUESTION,
        betas=["context-management-2025-06-27"],
        metadata={"user_id": "someone"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        extra_body=GREEDY,
    )
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 5


def test_stream_says_the_same(client: anthropic.Anthropic) -> None:
    prompt: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "system": "Be brief."}
    asked: dict[str, Any] = prompt | {"max_tokens": 30, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 2 and "".join(pieces) == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    total = [m.usage.input_tokens + (m.usage.cache_read_input_tokens or 0) for m in (whole, final)]
    assert total[0] == total[1] == client.messages.count_tokens(**prompt).input_tokens


def test_raw_stream_in_order(live: Live) -> None:
    events = raw_events(live, {"model": "smollm2", "max_tokens": 5, "messages": QUESTION, **GREEDY})
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0].message.content == [] and events[0].message.stop_reason is None
    assert events[-2].delta.stop_reason == "max_tokens" and events[-2].usage.output_tokens == 5


async def _ask(live: Live) -> str:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 5, "messages": QUESTION, "extra_body": GREEDY}
    client = anthropic.AsyncAnthropic(base_url=live.url, api_key="none", max_retries=0)
    async with client, client.messages.stream(**asked) as stream:
        return "".join([text async for text in stream.text_stream])


def test_async_client(live: Live) -> None:
    assert asyncio.run(_ask(live))


def test_count_tokens(live: Live) -> None:
    response = live.post("/v1/messages/count_tokens", {"model": "smollm2", "messages": QUESTION})
    assert strict(MessageTokensCount, response.content).input_tokens > 10
    assert response.headers["request-id"].startswith("req_")
    begun = [*QUESTION, {"role": "assistant", "content": "The capital"}]
    more = live.post("/v1/messages/count_tokens", {"model": "smollm2", "messages": begun}).json()
    assert more["input_tokens"] == response.json()["input_tokens"] + 2


def test_prefill_goes_on(client: anthropic.Anthropic) -> None:
    begun = [{"role": "user", "content": "Count to ten: "}, {"role": "assistant", "content": "1, 2, 3,"}]
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 40, "messages": begun, "extra_body": GREEDY}
    message = client.messages.create(stop_sequences=["nothing", " 7"], **asked)
    assert message.content[0].text == " 4, 5, 6,"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " 7")


def test_prompt_alone(client: anthropic.Anthropic) -> None:
    messages = [{"role": "user", "content": "A prompt that is computed and not answered."}]
    warm = client.messages.create(model="smollm2", max_tokens=0, messages=messages)
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    assert warm.usage.input_tokens > 10
    again = client.messages.create(model="smollm2", max_tokens=1, messages=messages)
    assert (again.usage.cache_read_input_tokens or 0) > 16


def test_context_is_full(live: Live) -> None:
    class Small(Scripted):
        """Its context ends after two tokens."""

    live.adopt("small", lambda: Small([said(text="a"), said(text="b"), done("length")]))
    body = {"model": "small", "max_tokens": 100, "messages": QUESTION}
    assert live.post("/v1/messages", body).json()["stop_reason"] == "model_context_window_exceeded"
    assert live.post("/v1/messages", body | {"max_tokens": 2}).json()["stop_reason"] == "max_tokens"


# ---- tools -----------------------------------------------------------------------------------------------


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


def begun_blocks(events: list[Any]) -> list[tuple[int, str]]:
    """Index and type of every block; each must end before the next begins."""
    marks = [event for event in events if event.type in ("content_block_start", "content_block_stop")]
    begun, ended = marks[::2], marks[1::2]
    assert all(event.type == "content_block_start" for event in begun)
    assert [event.index for event in begun] == [event.index for event in ended]
    return [(event.index, event.content_block.type) for event in begun]


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


# ---- errors ----------------------------------------------------------------------------------------------

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "url", "url": "http://localhost/x.pdf"}}
USED = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"bogus": 1}, "bogus"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stop_sequences": [""]}, "stop"),
        ({"stop_sequences": ["x"] * 17}, "stop"),
        (user(IMAGE), "messages[0].content[0]"),
        (user({"type": "text", "text": "see"}, PDF), "messages[0].content[1]"),
        (user(PDF | {"source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}), "citations"),
        (user({"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}), "toolu_9"),
        (user(USED), "messages[0].content[0]"),
        (user({"type": "video"}), "messages[0].content[0].type"),
        ({"messages": [*QUESTION, {"role": "assistant", "content": [USED]}]}, "tool_result"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tools": [{"name": "f", "input_schema": {"type": "object", "properties": ""}}]}, "properties"),
        ({"tools": [WEATHER] * 129}, "129"),
        ({"tools": [WEATHER, WEATHER]}, "get_weather"),
        ({"tools": [WEATHER | {"defer_loading": True}]}, "tools[0]"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "output_config": {"format": SCHEMA}}, "tools"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "shape"}}}}, "shape"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "budget_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"mcp_servers": [{"type": "url", "url": "http://localhost", "name": "x"}]}, "mcp_servers"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"speed": "fast"}, "speed"),
        ({"container": "container_1"}, "container"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_is_a_400_that_names_the_field(live: Live, change: dict[str, Any], named: str, stream: bool) -> None:
    body = {"model": "smollm2", "max_tokens": 20, "messages": QUESTION, "stream": stream} | change
    response = live.post("/v1/messages", {key: value for key, value in body.items() if value is not None})
    assert response.status_code == 400, response.text
    error = strict(ErrorResponse, response.content)
    assert error.error.type == "invalid_request_error" and named in error.error.message
    assert error.request_id == response.headers["request-id"]


def test_errors_of_the_official_client(client: anthropic.Anthropic, live: Live) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="nobody", max_tokens=5, messages=QUESTION)
    assert missing.value.type == "not_found_error" and missing.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="no chat template"):
        client.messages.create(model="stories", max_tokens=5, messages=QUESTION)
    long = [{"role": "user", "content": "word " * 4000}]
    with pytest.raises(anthropic.BadRequestError, match="the context holds"):
        client.messages.create(model="smollm2", max_tokens=5, messages=long)
    assert live.post("/v1/messages", None).status_code == 400
    deep = b'{"model": "smollm2", "max_tokens": 5, "messages": [], "container": ' + b"[" * 100_000
    assert httpx.post(f"{live.url}/v1/messages", content=deep, timeout=PATIENCE).status_code == 400
    response = httpx.post(f"{live.url}/v1/messages", content=b"{", timeout=PATIENCE)
    assert response.status_code == 400 and "JSON" in strict(ErrorResponse, response.content).error.message
    assert httpx.get(f"{live.url}/v1/messages", timeout=PATIENCE).json()["type"] == "error"


def test_error_in_the_middle_of_a_stream(client: anthropic.Anthropic, live: Live) -> None:
    lost = done("error", error=ErrorInfo("ModelLost", "the model's process ended"))
    live.adopt("mortal", lambda: Scripted([said(text="Once"), lost]))
    body: dict[str, Any] = {"model": "mortal", "max_tokens": 5, "messages": QUESTION}
    events = raw_events(live, body)
    assert [event.type for event in events][-2:] == ["content_block_delta", "error"]
    assert events[-1].error.type == "overloaded_error"
    with pytest.raises(anthropic.APIStatusError, match="process ended"), client.messages.stream(**body) as stream:
        stream.get_final_message()


# ---- cancelling ------------------------------------------------------------------------------------------


def test_closed_stream_is_cancelled(client: anthropic.Anthropic, live: Live) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 1500, "messages": QUESTION}
    with client.messages.stream(**asked, extra_body={"temperature": 1.5}) as stream:
        next(iter(stream.text_stream))
        assert not live.idle("smollm2")
    assert wait_for(lambda: live.idle("smollm2"), 5)
    entry = live.models.entries["smollm2"]
    assert wait_for(lambda: entry.users == 0, 5)


def test_closed_in_the_middle_of_a_prompt(live: Live) -> None:
    long = "".join(f"{number} " for number in range(480))
    body = {"model": "smollm2", "max_tokens": 5, "messages": [{"role": "user", "content": long}], "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/messages", json=body, timeout=PATIENCE) as response:
        assert response.status_code == 200 and b"message_start" in next(response.iter_bytes())
        (sequence,) = live.engines["smollm2"].core.running
    assert wait_for(lambda: live.idle("smollm2"), 5)
    assert sequence.finish_reason == "cancelled" and not sequence.generated
