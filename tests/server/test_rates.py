"""Token buckets, requests at a time, and time limits."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from live_server import Scripted, said, wait_for
from protected_server import CHAT, Protected, protected
from websockets.sync.client import connect

from llamina.server.caller import Caller
from llamina.server.config import Config
from llamina.server.protection.buckets import Account, Bucket
from llamina.server.protection.keys import hashed
from llamina.server.protection.rate_limit import MOST, RateLimit
from llamina.server.protection.rates import Rates
from llamina.server.protection.settings import ApiKey


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_in_a_minute() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    bucket.take(60)
    assert bucket.wait_for(1) == pytest.approx(1) and bucket.reset == pytest.approx(60)
    clock.now = 30
    assert bucket.level == pytest.approx(30) and bucket.wait_for(1) == 0
    clock.now = 1000
    assert bucket.level == 60


def test_debts_are_paid_first() -> None:
    clock = Clock()
    account = Account(0, 600, 0, clock)
    assert account.obstacle() is None
    account.spend(1200)  # an answer may be longer than what was there
    found = account.obstacle()
    assert found is not None and found[1] == pytest.approx(60.1)
    assert account.headers()["x-ratelimit-remaining-tokens"] == "0"
    clock.now = 60.2
    assert account.obstacle() is None


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    keys = [
        ApiKey(hashed("a"), "a", rates=Rates(requests=3)),
        ApiKey(hashed("b"), "b", rates=Rates(tokens=20)),
        ApiKey(hashed("c"), "c", rates=Rates(concurrent=1)),
    ]
    with protected(keys=keys, api_keys=["d"], key_rates=Rates(requests=2)) as found:
        yield found


def test_requests_a_minute(server: Protected) -> None:
    left = [server.ask("/v1/models", key="a").headers["x-ratelimit-remaining-requests"] for _ in range(3)]
    assert left == ["2", "1", "0"]
    refused = server.ask("/v1/models", key="a")
    assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 20
    assert refused.headers["x-ratelimit-limit-requests"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="a", max_retries=0).models.list()
    other = httpx.post(server.url + "/v1/messages", json={}, headers={"x-api-key": "a"})
    assert other.status_code == 429 and other.json()["error"]["type"] == "rate_limit_error"
    assert server.ask("/health").status_code == 200


def test_keys_have_buckets_of_their_own(server: Protected) -> None:
    codes = [server.ask("/v1/models", key="d").status_code for _ in range(3)]
    assert codes == [200, 200, 429]


def test_tokens_a_minute(server: Protected) -> None:
    """The prompt has 7 tokens, the answer 1: after the third request nothing is there, and the fourth is refused."""
    answers = [server.ask("/v1/chat/completions", CHAT, "b") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit-tokens"] == "20"
    assert "tokens a minute" in answers[3].json()["error"]["message"]


def test_a_stream_is_charged_as_it_comes(server: Protected) -> None:
    with protected(api_keys=["x"], key_rates=Rates(tokens=8)) as other:
        with httpx.stream(
            "POST", other.url + "/v1/chat/completions", json=CHAT | {"stream": True}, headers={"x-api-key": "x"}
        ) as stream:
            assert stream.status_code == 200 and "Hello" in stream.read().decode()
        assert other.ask("/v1/models", key="x").status_code == 429


def test_a_response_in_the_background_is_charged() -> None:
    with protected(api_keys=["x"], key_rates=Rates(tokens=20)) as other:
        body = {"model": "scripted", "input": "x", "background": True}
        path = f"/v1/responses/{other.ask('/v1/responses', body, 'x').json()['id']}"
        assert wait_for(lambda: other.ask(path, key="x").json()["status"] == "completed")
        assert int(other.ask(path, key="x").headers["x-ratelimit-remaining-tokens"]) <= 15


def test_requests_of_a_websocket_are_counted() -> None:
    """Its handshake is one, and each chat another: neither many requests nor many tokens get around the rates."""
    for rates, allowed in ((Rates(requests=3, concurrent=1), 2), (Rates(tokens=9), 2)):
        with protected(api_keys=["x"], key_rates=rates) as other:
            url = other.url.replace("http", "ws") + "/v1/chat/ws"
            with connect(url, additional_headers={"x-api-key": "x"}) as socket:
                for turn in range(allowed + 1):
                    socket.send(json.dumps(CHAT))
                    found = json.loads(socket.recv(20))
                    while found["type"] not in ("done", "error"):
                        found = json.loads(socket.recv(20))
                    assert found["type"] == ("done" if turn < allowed else "error"), found
                assert found["code"] == "rate_limit_exceeded"


def test_requests_at_a_time(server: Protected) -> None:
    """A stream that is open takes a key's place, until it is left."""
    begins = server.live.adopt("begins", lambda: Scripted([said(text="Once ")]))
    body = CHAT | {"model": "begins", "stream": True}
    with _held(server, "c", body):
        assert wait_for(lambda: begins.active == 1)
        refused = server.ask("/v1/models", key="c")
        assert refused.status_code == 429 and "at a time" in refused.json()["error"]["message"]
        assert server.ask("/v1/models", key="c").headers["retry-after"] == "1"
    assert wait_for(lambda: server.ask("/v1/models", key="c").status_code == 200)


def _held(server: Protected, key: str, body: dict[str, Any]) -> Any:
    """A connection that waits for an answer; leaving it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: {key}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


def test_all_callers_together() -> None:
    with protected(api_keys=["x", "y"], rates=Rates(requests=2)) as server:
        codes = [server.ask("/v1/models", key=key).status_code for key in "xyxy"]
        assert codes == [200, 200, 429, 429]


def test_accounts_are_forgotten_when_nothing_changes_by_it() -> None:
    limit = RateLimit(lambda *_: None, Config(key_rates=Rates(requests=5)))  # type: ignore[arg-type]
    kept = limit._account(Caller("kept"))
    assert kept.requests is not None
    kept.requests.take(5)
    for n in range(2 * MOST):
        limit._account(Caller(f"{n}"))
    assert len(limit._accounts) <= MOST + 1 and limit._account(Caller("kept")) is kept


# ---- requests at a time, of the server -------------------------------------------------------------------


def test_beyond_the_most_at_a_time_it_is_503() -> None:
    with protected(max_concurrent=2) as server:
        body, silent = CHAT | {"model": "silent"}, server.silent
        held = [_held(server, "", body) for _ in range(2)]
        assert wait_for(lambda: len(silent.asked) == 2)
        refused = server.ask("/v1/chat/completions", CHAT)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert server.ask("/api/chat", CHAT).json()["error"].startswith("2 requests are under way")
        overloaded = server.ask("/v1/messages", {})
        assert overloaded.status_code == 503 and overloaded.json()["error"]["type"] == "overloaded_error"
        assert server.ask("/health").status_code == 200
        for connection in held:
            connection.close()


# ---- time ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty() -> Iterator[Protected]:
    with protected(timeout=0.3) as found:
        yield found


PATHS = [
    ("/v1/chat/completions", {"model": "silent", "messages": CHAT["messages"]}),
    ("/v1/completions", {"model": "silent", "prompt": "hi"}),
    ("/v1/embeddings", {"model": "silent", "input": "hi"}),
    ("/v1/messages", {"model": "silent", "messages": CHAT["messages"], "max_tokens": 5}),
    ("/api/chat", {"model": "silent", "messages": CHAT["messages"], "stream": False}),
    ("/api/generate", {"model": "silent", "prompt": "hi", "stream": False}),
    ("/api/embed", {"model": "silent", "input": "hi"}),
]


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_an_answer_that_takes_too_long_is_504(path: str, body: Any, hasty: Protected) -> None:
    cancelled = hasty.silent.cancelled
    answer = hasty.ask(path, body)
    assert answer.status_code == 504 and "0.3 s" in answer.text
    assert hasty.silent.cancelled > cancelled


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/chat/completions", 'data: {"error":{"message":"the answer was not done'),
        ("/v1/messages", 'event: error\ndata: {"type":"error"'),
        ("/api/chat", '{"error":"the answer was not done'),
    ],
)
def test_a_stream_that_takes_too_long_ends_with_an_error(path: str, end: str, hasty: Protected) -> None:
    hasty.live.adopt("begins", lambda: Scripted([said(text="Once ")]))
    body = {"model": "begins", "messages": CHAT["messages"], "stream": True}
    body |= {"max_tokens": 5} if path == "/v1/messages" else {}
    with httpx.stream("POST", hasty.url + path, json=body, timeout=20) as stream:
        text = stream.read().decode()
    assert stream.status_code == 200 and "Once" in text and end in text


def test_a_body_that_does_not_come_is_408(hasty: Protected) -> None:
    host, port = hasty.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408") and b'"code":"timeout"' in answer
