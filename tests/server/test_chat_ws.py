"""Chats over a WebSocket, with the `websockets` client, against a live server."""

import json
import socket
from typing import Any

import pytest
from live_server import Live, Scripted, done, said, wait_for
from protected_server import CHAT, protected
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from llamina.server.model.frames import CallDelta

HI = [{"role": "user", "content": "What is the capital of Japan?"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


def opened(live: Live, **options: Any) -> ClientConnection:
    return connect(live.url.replace("http", "ws") + "/v1/chat/ws", **options)


def ask(connection: ClientConnection, body: Any) -> list[dict[str, Any]]:
    """The events of a request, or of raw text, up to its end."""
    connection.send(body if isinstance(body, str | bytes) else json.dumps(body))
    events = [json.loads(connection.recv(20))]
    while events[-1]["type"] not in ("done", "error"):
        events.append(json.loads(connection.recv(20)))
    return events


def test_requests_one_after_the_other(live: Live) -> None:
    expected = live.engines["smollm2"].chat(HI, **GREEDY)
    with opened(live) as connection:
        for _ in range(2):
            events = ask(connection, {"model": "smollm2", "messages": HI, **GREEDY})
            *tokens, last = events
            assert {event["type"] for event in tokens} == {"token"} and len(tokens) > 3
            assert "".join(event["delta"] for event in tokens) == expected.text
            assert last["finish_reason"] == expected.finish_reason
            assert last["usage"]["completion_tokens"] == expected.usage.completion_tokens


def test_every_kind_of_event(live: Live) -> None:
    chunks = [
        said(reasoning="Hm"),
        said(text="So "),
        said(calls=[CallDelta(0, "call_1", "f"), CallDelta(0, arguments="{}")]),
        done(),
    ]
    live.adopt("speaking", lambda: Scripted(chunks))
    with opened(live) as connection:
        *events, last = ask(connection, {"model": "speaking", "messages": HI})
    assert events == [
        {"type": "reasoning", "delta": "Hm"},
        {"type": "token", "delta": "So "},
        {
            "type": "tool_call",
            "tool_call": {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}},
        },
        {"type": "tool_call", "tool_call": {"index": 0, "function": {"arguments": "{}"}}},
    ]
    assert last["finish_reason"] == "tool_calls" and last["usage"]["total_tokens"] == 12


def test_several_answers_and_logprobs(live: Live) -> None:
    body = {"model": "smollm2", "messages": HI, "n": 2, "max_tokens": 3, "logprobs": True, "return_progress": True}
    with opened(live) as connection:
        connection.send(json.dumps(body))
        events: list[dict[str, Any]] = []
        while sum(event["type"] == "done" for event in events) < 2:
            events.append(json.loads(connection.recv(20)))
    assert {event["index"] for event in events} == {0, 1}
    assert all(event["logprobs"] for event in events if event["type"] == "token")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "JSON"),
        ('{"messages": ' + "[" * 100_000, "nested"),
        (b"\x00", "text message"),
        ({"messages": HI, "nonsense": 1}, "nonsense"),
        ({"messages": HI, "model": "none"}, "there is no model"),
        ({"messages": HI, "model": "smollm2", "temperature": -1}, "temperature"),
        ({"messages": HI, "n": 99}, "n is 99"),
        ({"type": "cancel"}, "nothing is being generated"),
        ('{"messages": [], "user": "' + "x" * (11 << 20) + '"}', "larger than"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_errors_leave_the_connection_open(live: Live, body: Any, message: str) -> None:
    with opened(live) as connection:
        (event,) = ask(connection, body)
        assert event["type"] == "error" and message in event["message"]
        assert ask(connection, {"model": "stories", "messages": HI, "max_tokens": 1})[-1]["type"] in ("done", "error")


def test_cancel(live: Live) -> None:
    """The answer ends at once, and the next request is answered."""
    with opened(live) as connection:
        connection.send(json.dumps({"model": "smollm2", "messages": HI, "max_tokens": 1500, "ignore_eos": True}))
        json.loads(connection.recv(20))
        (second,) = [e for e in ask(connection, {"model": "smollm2", "messages": HI}) if e["type"] == "error"]
        assert "wait until it is done" in second["message"]
        last = ask(connection, {"type": "cancel"})[-1]
        assert last["finish_reason"] == "cancelled" and 0 < last["usage"]["completion_tokens"] < 1500
        assert wait_for(lambda: live.idle("smollm2"))
        assert ask(connection, {"model": "smollm2", "messages": HI, **GREEDY})[-1]["type"] == "done"


def test_a_client_that_goes_away_cancels(live: Live) -> None:
    with opened(live) as connection:
        connection.send(json.dumps({"model": "smollm2", "messages": HI, "max_tokens": 1500, "ignore_eos": True}))
        connection.recv(20)
        connection.socket.shutdown(socket.SHUT_RDWR)  # without a farewell
        assert wait_for(lambda: live.idle("smollm2"))


def test_a_page_of_a_listed_origin_may_connect() -> None:
    with (
        protected(cors_origins=["http://app.example"]) as server,
        connect(server.url.replace("http", "ws") + "/v1/chat/ws", origin=Origin("http://app.example")) as connection,
    ):
        assert ask(connection, CHAT)[-1]["type"] == "done"


def test_a_message_that_is_nested_deeply(live: Live) -> None:
    deep: Any = "x"
    for _ in range(150):
        deep = [deep]
    with opened(live) as connection:
        (found,) = ask(connection, {"model": "smollm2", "messages": HI, "chat_template_kwargs": {"a": deep}})
        assert found["type"] == "error" and "100 levels" in found["message"]


def test_pages_of_other_sites_may_not_connect(live: Live) -> None:
    with pytest.raises(InvalidStatus), opened(live, origin="http://evil.example"):
        pass
    with opened(live, origin=live.url):
        pass
