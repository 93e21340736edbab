"""What is wrong with a request to Anthropic's API is told in its shape."""

from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types.shared import ErrorResponse
from anthropic_objects import QUESTION, WEATHER, official_client, raw_events, strict
from live_server import PATIENCE, Live, Scripted, done, said

from llamina.server.errors import ApiError, anthropic_shape
from llamina.server.model.frames import ErrorInfo


@pytest.fixture(scope="module")
def client(live: Live) -> anthropic.Anthropic:
    return official_client(live)


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
        (user(IMAGE), "reads text only"),
        (user({"type": "text", "text": "see"}, PDF), "messages[0].content[1]"),
        (user(PDF | {"source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}), "citations"),
        (user({"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}), "toolu_9"),
        (user(USED), "messages[0].content[0]"),
        (user({"type": "video"}), "messages[0].content[0].type"),
        ({"messages": [*QUESTION, {"role": "assistant", "content": [USED]}]}, "tool_result"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
        ({"tools": [{"type": 3, "name": "f"}]}, "tools[0]"),
        ({"tools": [{"type": "web_search_20250305"}], "tool_choice": {"type": "any"}}, "tool_choice"),
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


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long(client: anthropic.Anthropic, live: Live, stream: bool) -> None:
    late = done("error", error=ErrorInfo("Timeout", "the answer was not done within 1 s"))
    live.adopt("late", lambda: Scripted([late]))
    response = live.post("/v1/messages", {"model": "late", "max_tokens": 5, "messages": QUESTION, "stream": stream})
    assert response.status_code == 504
    assert strict(ErrorResponse, response.content).error.type == "timeout_error"
    with pytest.raises(anthropic.APIStatusError, match="not done within") as raised:
        client.messages.create(model="late", max_tokens=5, messages=QUESTION)
    assert raised.value.type == "timeout_error"
    live.models.entries.pop("late")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "not_found_error"), (408, "timeout_error"), (409, "invalid_request_error"), (413, "request_too_large"),
        (429, "rate_limit_error"), (500, "api_error"), (503, "overloaded_error"), (504, "timeout_error"),
        (507, "api_error"),
    ],
)  # fmt: skip
def test_kinds_of_errors(status: int, kind: str) -> None:
    """As Anthropic's documentation lists them."""
    assert anthropic_shape(ApiError(status, "so it is"))["error"] == {"type": kind, "message": "so it is"}


def test_error_in_the_middle_of_a_stream(client: anthropic.Anthropic, live: Live) -> None:
    lost = done("error", error=ErrorInfo("ModelLost", "the model's process ended"))
    live.adopt("mortal", lambda: Scripted([said(text="Once"), lost]))
    body: dict[str, Any] = {"model": "mortal", "max_tokens": 5, "messages": QUESTION}
    events = raw_events(live, body)
    assert [event.type for event in events][-2:] == ["content_block_delta", "error"]
    assert events[-1].error.type == "overloaded_error"
    with pytest.raises(anthropic.APIStatusError, match="process ended"), client.messages.stream(**body) as stream:
        stream.get_final_message()
