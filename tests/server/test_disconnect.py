"""A client that leaves, whatever it asked for: nothing more is computed for it."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from live_server import Live, wait_for

LONG = "Tell me about llamas. " * 230
USER = [{"role": "user", "content": LONG}]
WITHOUT_END: dict[str, Any] = {"max_tokens": 100_000, "ignore_eos": True, "context_shift": True}


def ask(live: Live, path: str, body: dict[str, Any]) -> socket.socket:
    """Send a request, and do not wait for the answer."""
    where, data = urlsplit(live.url), json.dumps(body).encode()
    connection = socket.create_connection((where.hostname, where.port))
    head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Once", **WITHOUT_END}),
        ("/v1/completions", {"prompt": ["Once", "Lily"], "n": 2, **WITHOUT_END}),
        ("/completion", {"prompt": "Once", **WITHOUT_END}),
        ("/completion", {"prompt": ["Once", "Lily"], "stream": True, **WITHOUT_END}),
        (
            "/api/generate",
            {"prompt": "Once", "raw": True, "stream": False, "shift": True},
        ),
    ],
)
def test_a_client_that_leaves_before_the_answer(live: Live, path: str, body: dict[str, Any]) -> None:
    engine = live.engines["stories"]
    cancelled = engine.metrics.requests["cancelled"]
    connection = ask(live, path, {"model": "stories", **body})
    assert wait_for(lambda: bool(engine.core.running))
    connection.close()
    assert wait_for(lambda: live.idle("stories"))
    assert engine.metrics.requests["cancelled"] > cancelled


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": USER}),
        ("/v1/chat/completions", {"messages": USER, "stream": True}),
        ("/v1/messages", {"messages": USER, "max_tokens": 5}),
        ("/api/chat", {"messages": USER, "stream": False}),
        ("/v1/embeddings", {"input": [LONG] * 4}),
    ],
)
def test_in_the_middle_of_a_prompt(live: Live, path: str, body: dict[str, Any]) -> None:
    engine = live.engines["smollm2"]
    engine.stepper.call(engine.core.pages.forget)  # else the prompt would be in the prefix cache
    cancelled = engine.metrics.requests["cancelled"]
    connection = ask(live, path, {"model": "smollm2", **body})
    assert wait_for(lambda: any(s.computed > 0 for s in engine.core.running))
    sequences = list(engine.core.running)
    connection.close()
    assert wait_for(lambda: live.idle("smollm2"))
    assert engine.metrics.requests["cancelled"] > cancelled
    assert all(s.computed < len(s.request.prompt) and not s.generated for s in sequences)


def test_a_stream_that_was_asked_for_without_a_body(stage: Live) -> None:
    """The dashboard's: it has no end of its own."""
    assert wait_for(lambda: stage.server.requests.active == 0), "other tests' requests are done"
    with httpx.stream("GET", f"{stage.url}/dashboard/events") as response:
        assert next(response.iter_lines()).startswith("data:") and stage.server.requests.active == 1
    assert wait_for(lambda: stage.server.requests.active == 0)
