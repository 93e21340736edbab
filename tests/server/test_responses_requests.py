"""Requests of `/v1/responses`: what is refused, how items become messages, and who sees what."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Live, Scripted, done, said
from responses_objects import CAPITAL
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from llamina.server.app import build_app
from llamina.server.config import Config, Limits
from llamina.server.errors import ApiError
from llamina.server.model.frames import Generate
from llamina.server.models import Models
from llamina.server.openai.responses.items import ItemIds, normalized, response_of
from llamina.server.openai.responses.messages import to_messages
from llamina.server.openai.responses.tools import offer

BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": 7}, "input"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role"),
    ({"input": [{"content": "x"}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "messages"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": "x", "id": 7}]}, "input[0].id"),
    ({"input": [{"role": "user", "content": "x", "status": "new"}]}, "input[0].status"),
    ({"input": [{"role": "user", "content": "x", "id": "a"}] * 2}, "input"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
    ({"input": [{"type": "reasoning", "summary": "x", "content": 7}]}, "input[0].content"),
    ({"input": [{"type": "item_reference"}]}, "input[0].id"),
    ({"input": [{"role": "user", "content": "x", "weight": 2}]}, "input[0].weight"),
    ({"input": [{"role": "user", "content": "x", "phase": "late"}]}, "input[0].phase"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "voice": 1}]}]},
        "input[0].content[0].voice",
    ),
    ({"input": [{"role": "user", "content": [{"type": ["text"], "text": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1", "as": "x"}]}, "input[0].as"),
    ({"input": "x", "unknown": 1}, "unknown"),
    ({"input": "x", "n": 2}, "n"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "max_output_tokens": 5, "max_tokens": 6}, "max_tokens"),
    ({"input": "x", "max_tool_calls": 0}, "max_tool_calls"),
    ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
    ({"input": "x", "temperature": -1}, "temperature"),
    ({"input": "x", "truncation": "maybe"}, "truncation"),
    ({"input": "x", "include": ["everything"]}, "include[0]"),
    ({"input": "x", "reasoning": {"effort": "extreme"}}, "reasoning.effort"),
    ({"input": "x", "text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    ({"input": "x", "text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    ({"input": "x", "background": True, "store": False}, "background"),
    ({"input": "x", "conversation": "conv_1", "store": False}, "conversation"),
    ({"input": "x", "conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": "x", "metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"input": "x", "prompt_cache_key": "k" * 65}, "prompt_cache_key"),
    ({"input": "x", "return_progress": True}, "return_progress"),
    ({"input": "x", "tools": [{"name": "f"}]}, "tools[0].type"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": 7}]}, "tools[0].parameters"),
    ({"input": "x", "tools": [{"type": "function", "name": "f", "strict": "yes"}]}, "tools[0].strict"),
    ({"input": "x", "tools": [CAPITAL | {"timeout": 5}]}, "tools[0].timeout"),
    ({"input": "x", "tools": [CAPITAL | {"allowed_callers": ["programmatic"]}]}, "tools[0].allowed_callers"),
    ({"input": "x", "tools": [CAPITAL | {"allowed_callers": 7}]}, "tools[0].allowed_callers"),
    ({"input": "x", "tools": [CAPITAL] * 129}, "tools"),
    ({"input": "x", "tool_choice": "sometimes"}, "tool_choice"),
    ({"input": "x", "tool_choice": "required"}, "tool_choice"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:50])
def test_what_is_refused(live: Live, body: dict[str, Any], param: str) -> None:
    for also in ({}, {"stream": True}):
        answer = live.post("/v1/responses", {"model": "smollm2"} | body | also)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param, answer.text


def test_an_unknown_parameter_is_called_so(live: Live) -> None:
    item = {"role": "user", "content": "x", "temperature": 0}
    for body in ({"input": "x", "colour": 1}, {"input": [item]}):
        error = live.post("/v1/responses", {"model": "smollm2"} | body).json()["error"]
        assert error["code"] == "unknown_parameter" and error["type"] == "invalid_request_error"


def test_fields_that_tell_of_an_item_ask_nothing(live: Live) -> None:
    """What coding agents and SDKs send along; what tells whose call it is comes back."""
    model = live.adopt("telling", lambda: Scripted([said(text="yes"), done()]))
    assert isinstance(model, Scripted)
    call = {"call_id": "c1", "namespace": "mcp", "caller": {"type": "direct"}}
    items = [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
        ], "metadata": {"turn": "1"}, "end_turn": None},
        {"type": "function_call", "name": "f", "arguments": "{}", "parsed_arguments": None, **call},
        {"type": "function_call_output", "name": "f", "output": "y", "created_by": "me", **call},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
    ]  # fmt: skip
    tools = [CAPITAL | {"defer_loading": True, "output_schema": {"type": "string"}, "allowed_callers": ["direct"]}]
    answer = live.post("/v1/responses", {"model": "telling", "input": items, "tools": tools})
    assert answer.status_code == 200, answer.text
    for name in ("encrypted reasoning", "defer_loading", "output_schema"):
        assert name in answer.headers["x-llamina-warnings"]
    asked = model.asked[-1]
    assert isinstance(asked, Generate) and asked.messages is not None
    assert [message["role"] for message in asked.messages] == ["user", "assistant", "tool", "assistant"]
    kept = httpx.get(f"{live.url}/v1/responses/{answer.json()['id']}/input_items?order=asc").json()["data"]
    assert [item.get("namespace") for item in kept] == [None, "mcp", "mcp", None] and kept[2]["name"] == "f"
    live.models.entries.pop("telling")


def test_what_is_not_there(live: Live) -> None:
    for body, param in (({"model": "none"}, "model"), ({"conversation": "conv_1"}, "conversation")):
        answer = live.post("/v1/responses", {"model": "smollm2", "input": "x"} | body)
        assert answer.status_code == 404 and answer.json()["error"]["param"] == param


def test_allowed_tools() -> None:
    other = CAPITAL | {"name": "other"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    found = offer([CAPITAL, other], allowed, Limits())
    assert [tool["function"]["name"] for tool in found.functions] == ["other"] and found.choice == "required"
    assert [tool["name"] for tool in found.shown] == ["capital", "other"]
    with pytest.raises(ApiError, match="no function"):
        offer([CAPITAL], allowed | {"tools": [{"type": "web_search"}]}, Limits())


def test_items_of_one_turn_are_one_message() -> None:
    ids = ItemIds("resp_" + "0" * 24)
    given: list[dict[str, Any]] = [
        {"role": "developer", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "user", "content": [{"type": "input_text", "text": "d"}, {"type": "input_text", "text": "e"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "f"},
        {"type": "function_call", "call_id": "c1", "name": "g", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "h", "arguments": ""},
        {"type": "function_call_output", "call_id": "c2", "output": "i"},
    ]
    items = [normalized(item, "", ids) for item in given]
    found = to_messages("a", [item for item in items if item is not None])
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "h", "arguments": ""}},
    ]
    assert found == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "c\n\nd\ne"},
        {"role": "assistant", "content": "f", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "content": "i", "tool_call_id": "c2", "name": "h"},
    ]


def test_an_item_leads_to_its_response() -> None:
    response = "resp_" + "0123456789ab" * 2
    ids = ItemIds(response, 5)
    assert [response_of(ids(prefix)) for prefix in ("msg_", "fc_", "rs_")] == [response] * 3
    assert ids("msg_") == "msg_" + "0123456789ab" * 2 + "0008"


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[TestClient]:
    """A server where a header says who asks."""
    keys = ["key_a" * 8, "key_b" * 8]
    config = Config(data=str(tmp_path), limits=Limits(messages=6), api_keys=keys)
    models = Models(config)
    app = build_app(config, models)

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            owner = dict(scope["headers"])[b"x-owner"]
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer " + owner * 8)]
        await app(scope, receive, send)

    with TestClient(named, base_url="http://localhost") as client:
        assert client.portal is not None
        client.portal.call(lambda: models.adopt("scripted", Scripted([said(text="yes"), done()])))
        yield client


def test_warnings_fit_a_header(owned: TestClient) -> None:
    tools = [{"type": "\r\nset-cookie: é" + "x" * 5000}]
    answer = owned.post("/v1/responses", json={"input": "x", "tools": tools}, headers={"x-owner": "key_a"})
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert (
        "??set-cookie: ?xxx" in answer.headers["x-llamina-warnings"]
        and len(answer.headers["x-llamina-warnings"]) <= 1000
    )


def test_a_schema_that_is_nested_deeply(owned: TestClient) -> None:
    for depth in (100, 400, 900, 980, 2000):
        schema = '{"not": ' * depth + "{}" + "}" * depth
        body = '{"input": "x", "tools": [{"type": "function", "name": "f", "parameters": ' + schema + "}]}"
        answer = owned.post("/v1/responses", content=body, headers={"x-owner": "key_a"})
        assert answer.status_code in (200, 400), (depth, answer.text)


def test_an_owner_sees_only_its_own(owned: TestClient) -> None:
    mine, other = {"x-owner": "key_a"}, {"x-owner": "key_b"}
    conversation = owned.post("/v1/conversations", json={"items": []}, headers=mine).json()["id"]
    body = {"input": "x", "conversation": conversation}
    made = owned.post("/v1/responses", json=body, headers=mine).json()
    background = owned.post("/v1/responses", json={"input": "x", "background": True}, headers=mine).json()
    item = made["output"][0]["id"]
    for method, path in [
        ("GET", f"/v1/responses/{made['id']}"),
        ("GET", f"/v1/responses/{made['id']}/input_items"),
        ("POST", f"/v1/responses/{background['id']}/cancel"),
        ("DELETE", f"/v1/responses/{made['id']}"),
        ("GET", f"/v1/conversations/{conversation}"),
        ("GET", f"/v1/conversations/{conversation}/items"),
        ("GET", f"/v1/conversations/{conversation}/items/{item}"),
        ("DELETE", f"/v1/conversations/{conversation}/items/{item}"),
        ("DELETE", f"/v1/conversations/{conversation}"),
    ]:
        assert owned.request(method, path, headers=other).status_code == 404, path
    for also, status in (
        ({"previous_response_id": made["id"]}, 400),
        ({"conversation": conversation}, 404),
        ({"input": [{"type": "item_reference", "id": item}]}, 404),
    ):
        answer = owned.post("/v1/responses", json={"input": "x"} | also, headers=other)
        assert answer.status_code == status, answer.text
    assert owned.get("/v1/responses", headers=other).json()["data"] == []
    assert len(owned.get("/v1/responses", headers=mine).json()["data"]) == 2
    assert len(owned.get(f"/v1/conversations/{conversation}/items", headers=mine).json()["data"]) == 2


def test_a_context_has_a_most_of_items(owned: TestClient) -> None:
    """Counted with those before: 6 here."""
    id, mine = None, {"x-owner": "key_a"}
    for status in (200, 200, 200, 400):
        body = {"input": "x"} | ({"previous_response_id": id} if id else {})
        answer = owned.post("/v1/responses", json=body, headers=mine)
        assert answer.status_code == status, answer.text
        id = answer.json().get("id")
    conversation = owned.post("/v1/conversations", json={}, headers=mine).json()["id"]
    for status in (200, 400):
        items = {"items": [{"role": "user", "content": "x"}] * 4}
        answer = owned.post(f"/v1/conversations/{conversation}/items", json=items, headers=mine)
        assert answer.status_code == status, answer.text
