"""What surrounds requests: ids, log lines, traces, clients that leave, streams that wait, a full queue."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from live_server import PATIENCE, Live, Scripted, done, said, serving, wait_for

from llamina.engine import load
from llamina.server import http
from llamina.server.config import Config, ModelProfile
from llamina.server.logs import JsonLines
from llamina.server.model import client
from skips import import_peer

ENDLESS = {"model": "stories", "prompt": "Once", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True}
CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a secret question"}]}


@pytest.fixture
def scripted(live: Live) -> Iterator[Scripted]:
    """A model that says "ok"."""
    chunks = [said(text="ok"), done(tokens=2)]
    model = live.adopt("scripted", lambda: Scripted(chunks))
    assert isinstance(model, Scripted)
    yield model
    del live.models.entries["scripted"]


# ---- ids, logs, traces -----------------------------------------------------------------------------------


def test_request_ids(live: Live) -> None:
    """The client's own, if it can be one, in every answer; errors of each API and unknown paths included."""
    mine = {"x-request-id": "mine-1"}
    for path in ("/health", "/v1/models", "/nowhere", "/api/version"):
        assert httpx.get(live.url + path, headers=mine).headers["x-request-id"] == "mine-1"
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
        wrong = live.post(path, {"nonsense": 1}, headers=mine)
        assert wrong.status_code == 400 and wrong.headers["x-request-id"] == "mine-1"
    anthropic = live.post("/v1/messages", {}, headers=mine)
    assert anthropic.headers["request-id"] == anthropic.json()["request_id"] == "mine-1"
    new = [httpx.get(live.url + "/health", headers={"x-request-id": "no,good" * 40}) for _ in range(2)]
    ids = [response.headers["x-request-id"] for response in new]
    assert ids[0] != ids[1] and all(id.startswith("req_") for id in ids)


def test_log_lines(live: Live, scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    """One for each request, with what it took; never what was asked, nor a query."""
    caplog.set_level(logging.INFO, "llamina")
    live.post("/v1/chat/completions", CHAT, headers={"x-request-id": "one"})
    httpx.get(live.url + "/v1/models/absent?token=hidden", headers={"x-request-id": "two"})
    httpx.get(live.url + "/no%0Awhere?token=hidden", headers={"x-request-id": "three"})
    assert wait_for(lambda: len([r for r in caplog.records if r.name == "llamina.requests"]) == 3)
    lines = [json.loads(JsonLines().format(r)) for r in caplog.records if r.name == "llamina.requests"]
    by_id = {line["request_id"]: line for line in lines}
    facts = {"method": "POST", "route": "/v1/chat/completions", "status": 200, "model": "scripted", "key": ""}
    assert by_id["one"].items() >= (facts | {"prompt_tokens": 7, "completion_tokens": 2, "level": "info"}).items()
    assert by_id["one"]["ms"] > 0
    assert by_id["two"]["route"] == "/v1/models/{id:path}" and by_id["two"]["status"] == 404
    assert by_id["three"]["route"] == "/no\\nwhere"
    assert "one, scripted, 7 + 2 tokens" in caplog.text
    for hidden in ("secret", "hidden"):
        assert hidden not in caplog.text and hidden not in json.dumps(lines)


def test_a_mistake_of_ours(
    live: Live, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Is a 500 that names the request, and its traceback is in the log."""

    def fails(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(scripted, "generate", fails)
    answer = live.post("/v1/chat/completions", CHAT, headers={"x-request-id": "mine-2"})
    assert answer.status_code == 500 and "mine-2" in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"] == "mine-2" and "oops" not in answer.text
    assert "mine-2" in caplog.text and "ZeroDivisionError" in caplog.text


def test_traces() -> None:
    """Each request is a span by OTLP, inside the client's own."""
    import_peer("opentelemetry.sdk")
    import_peer("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        with serving({}, Config(otel=f"http://127.0.0.1:{collector.server_port}", data="")) as server:
            server.adopt("scripted", lambda: Scripted([done(tokens=2)]))
            parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            server.post("/v1/chat/completions", CHAT, headers={"traceparent": parent})
    finally:
        collector.shutdown()
        collector.server_close()
    sent = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    spans = [s for request in sent for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    (span,) = spans
    assert span.name == "POST /v1/chat/completions"
    assert span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c" and span.parent_span_id.hex() == "b7ad6b7169203331"
    values = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
    assert values["gen_ai.request.model"] == "scripted" and values["gen_ai.usage.output_tokens"] == 2
    assert values["http.response.status_code"] == 200 and "secret" not in str(span)


# ---- clients that leave ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request(live: Live, stream: bool) -> None:
    """Also if it does not stream."""
    body, url = ENDLESS | {"stream": stream}, live.url + "/v1/completions"
    with pytest.raises(httpx.ReadTimeout), httpx.stream("POST", url, json=body, timeout=0.5) as got:
        for _ in got.iter_lines():
            if live.engines["stories"].core.running:
                raise httpx.ReadTimeout("enough")
    assert wait_for(lambda: live.idle("stories"))


def test_a_client_that_leaves_in_the_middle_of_a_prompt(live: Live) -> None:
    words = " ".join(f"word{i}" for i in range(450))
    body = {"model": "smollm2", "prompt": words, "max_tokens": 1, "cache_prompt": False}
    client = HTTPConnection(live.url.removeprefix("http://"))
    client.request("POST", "/v1/completions", json.dumps(body))
    engine = live.engines["smollm2"]
    assert wait_for(lambda: bool(engine.core.running))
    (sequence,) = engine.core.running
    client.close()
    assert wait_for(lambda: live.idle("smollm2"))
    assert sequence.computed < len(sequence.request.prompt)


# ---- streams that wait -----------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE", 0.05)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_stream_hears_comments_while_it_waits(live: Live, scripted: Scripted, path: str) -> None:
    """An error that comes later is an event in the API's shape."""
    scripted.chunks = []
    body = CHAT | {"stream": True, "max_tokens": 5}
    with httpx.stream("POST", live.url + path, json=body, timeout=PATIENCE) as got:
        assert got.status_code == 200 and got.headers["content-type"].startswith("text/event-stream")
        lines = got.iter_lines()
        assert next(lines) == ": waiting"
        live.call(_lose(scripted))
        rest = [line for line in lines if line and not line.startswith(":")]
    event = json.loads(rest[-1].removeprefix("data: "))
    if path == "/v1/messages":
        assert rest[0] == "event: error" and event["error"]["type"] == "overloaded_error"
    else:
        assert len(rest) == 1 and event["error"]["code"] == "model_lost"
    assert event["error"]["message"] == "it fell over"


async def _lose(model: Scripted) -> None:
    model.lose("it fell over")


@pytest.mark.usefixtures("hurried")
def test_a_stream_goes_on_after_comments(live: Live, scripted: Scripted) -> None:
    scripted.chunks = []
    with httpx.stream("POST", live.url + "/v1/chat/completions", json=CHAT | {"stream": True}, timeout=PATIENCE) as got:
        lines = got.iter_lines()
        assert next(lines) == ": waiting"

        async def answer() -> None:
            from llamina.server.model.frames import Chunks

            frame = scripted.asked[-1]
            for chunk in (said(text="ok"), done()):
                scripted.receive(Chunks([_with_id(chunk, frame.id)]))

        live.call(answer())
        rest = [line for line in lines if line.startswith("data: ")]
    assert '"content":"ok"' in "".join(rest) and rest[-1] == "data: [DONE]"


def _with_id(chunk: Any, id: int) -> Any:
    import msgspec

    return msgspec.structs.replace(chunk, id=id)


@pytest.mark.usefixtures("hurried")
def test_the_progress_of_a_load_is_visible(live: Live, golden: Any) -> None:
    """In the comments of a stream that waits for it, in /v1/models and in /api/ps."""
    profile = ModelProfile(model=str(golden("stories260K.gguf")), context=128, threads=1)

    async def add() -> None:
        live.models.add("later", profile)

    live.call(add())
    body = {"model": "later", "prompt": "Once", "max_tokens": 2, "stream": True}
    try:
        with httpx.stream("POST", live.url + "/v1/completions", json=body, timeout=PATIENCE) as got:
            lines = got.iter_lines()
            assert next(lines).startswith(": loading later")
            seen = httpx.get(live.url + "/v1/models/later").json()
            assert seen["meta"]["status"] in ("loading", "ready")
            running = httpx.get(live.url + "/api/ps").json()["models"]
            assert "later:latest" in [model["name"] for model in running]
            assert "data: [DONE]" in lines
        entry = live.models.entries["later"]
        assert entry.model is not None and 10 << 20 < entry.memory < 8 << 30, "that of the whole process"
    finally:
        live.call(live.models.remove(live.models.entries["later"]))


def test_keep_alive_and_progress_of_a_long_prompt(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE", 0.005)  # less than a step of the prompt takes
    words = " ".join(f"word{i}" for i in range(500))
    message = {"role": "user", "content": words}
    body = {"model": "smollm2", "messages": [message], "max_tokens": 1, "stream": True, "return_progress": True}
    with httpx.stream(
        "POST", live.url + "/v1/chat/completions", json=body | {"cache_prompt": False}, timeout=PATIENCE
    ) as got:
        lines = [line for line in got.iter_lines() if line]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert len(progress) >= 2 and all(p["total"] > 1000 for p in progress)
    processed = [p["processed"] for p in progress]
    assert processed == sorted(processed) and 0 < processed[0] < progress[0]["total"]
    assert any(line.startswith(": ") for line in lines), "the steps of a long prompt take longer than the interval"


def test_a_stream_that_nobody_reads_is_computed_no_further(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sockets on the way do not hold waits in the server, and there is a limit to that."""
    monkeypatch.setattr(client, "UNREAD", 200)
    body = json.dumps(ENDLESS | {"stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(live.url.rpartition(":")[2])))
        connection.sendall(head + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert wait_for(lambda: live.idle("stories"), PATIENCE), "while the client is still connected"


# ---- a full queue ----------------------------------------------------------------------------------------


def test_a_full_queue_answers_503(golden: Any) -> None:
    engine = load(golden("stories260K.gguf"), max_sequences=1, max_waiting=1, context=256)
    with serving({"stories": engine}) as server:
        running = engine.stream("Once", max_tokens=10**9, ignore_eos=True, context_shift=True)
        next(running)  # it has the one place, and keeps it
        waiting = engine.stream("Once", max_tokens=1)
        for path in ("/v1/completions", "/api/generate"):
            for stream in (False, True):
                full = server.post(path, {"model": "stories", "prompt": "Once", "stream": stream})
                assert full.status_code == 503 and int(full.headers["retry-after"]) > 0, full.text
        running.close()
        assert len(waiting.result().tokens) == 1
        assert server.post("/v1/completions", ENDLESS | {"max_tokens": 1}).status_code == 200
