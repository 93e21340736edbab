"""Responses in the background across an orderly restart, a full queue, and what cannot be gone on with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from live_server import Live, Scripted, done, said, wait_for
from openai.types.responses import ResponseErrorEvent
from responses_objects import OPEN_EVENTS, official_client, strict, strict_response
from starlette.testclient import TestClient

from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.errors import ApiError
from llamina.server.model.frames import ErrorInfo, Failed, Generate, ToModel
from llamina.server.models import Models
from llamina.server.openai.responses import routes, run
from llamina.server.store import Store


@contextmanager
def server(folder: Path, build: Callable[[], Scripted]) -> Iterator[TestClient]:
    """A server that keeps in a folder, with one model."""
    config = Config(data=str(folder))
    models = Models(config)
    app = build_app(config, models)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.portal is not None
        client.portal.call(lambda: models.adopt("scripted", build()))
        yield client


def status(client: TestClient, id: str) -> Any:
    return client.get(f"/v1/responses/{id}").json()["status"]


def test_a_server_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its responses in the background are made by the next one; the bias of a token, whose id is a number, too."""
    monkeypatch.setattr(run, "RETRY_SECONDS", 0.05)
    body = {"model": "scripted", "input": "q1", "background": True, "stream": False, "logit_bias": {"5": -1.5}}
    with server(tmp_path, lambda: Scripted([said(text="never")])) as client:
        conversation = client.post("/v1/conversations", json={}).json()["id"]
        id = client.post("/v1/responses", json=body | {"conversation": conversation}).json()["id"]
        assert wait_for(lambda: status(client, id) == "in_progress")
    built: list[Scripted] = []

    def build() -> Scripted:
        built.append(Scripted([said(text="yes"), done()]))
        return built[0]

    monkeypatch.setattr(Models, "find", _patient(Models.find))
    with server(tmp_path, build) as client:
        assert wait_for(lambda: status(client, id) == "completed")
        found = strict_response(client.get(f"/v1/responses/{id}").json())
        assert found.output_text == "yes" and found.background
        items = client.get(f"/v1/conversations/{conversation}/items?order=asc").json()["data"]
        assert [item["content"][0]["text"] for item in items] == ["q1", "yes"]
    asked = built[0].asked[0]
    assert isinstance(asked, Generate) and asked.options["logit_bias"] == {5: -1.5}
    assert isinstance(asked.options["seed"], int)


def _patient(find: Any) -> Any:
    """Models that are adopted after the start are found late, as if they were being loaded."""

    def found(self: Models, name: str | None) -> Any:
        if not self.entries:
            raise ApiError(503, "no model yet", "service_unavailable")
        return find(self, name)

    return found


def test_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    with server(tmp_path, lambda: Scripted([said(text="never")])) as client:
        id = client.post("/v1/responses", json={"model": "scripted", "input": "q1", "background": True}).json()["id"]
        assert wait_for(lambda: status(client, id) == "in_progress")
    store = Store(Config(data=str(tmp_path)).database_url, tmp_path)
    kept = asyncio.run(store.get("response", id))
    assert kept is not None
    kept.body["work"]["request"]["temperature"] = "hot"
    asyncio.run(store.change("response", id, body=kept.body))
    store.close()
    with server(tmp_path, lambda: Scripted([])) as client:
        found = strict_response(client.get(f"/v1/responses/{id}").json())
        assert found.status == "failed" and found.error is not None and found.error.code == "invalid_prompt"


class Busy(Scripted):
    """A model whose queue is full at first."""

    def send(self, frame: ToModel) -> None:
        super().send(frame)
        if isinstance(frame, Generate) and len(self.asked) == 1:
            self.receive(Failed(frame.id, ErrorInfo("QueueFull", "100 requests wait already")))


def test_a_queue_that_is_full(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the background waits; another is told to ask again."""
    monkeypatch.setattr(run, "RETRY_SECONDS", 0.01)
    client = official_client(live)
    live.adopt("busy", lambda: Busy([said(text="yes"), done()]))
    begun = client.responses.create(model="busy", input="x", background=True)
    assert wait_for(lambda: client.responses.retrieve(begun.id).status == "completed")
    live.adopt("busy", lambda: Busy([said(text="yes"), done()]))
    answer = live.post("/v1/responses", {"model": "busy", "input": "x", "stream": True})
    assert answer.status_code == 503 and answer.headers["retry-after"]
    live.models.entries.pop("busy")


def test_an_error_event() -> None:
    """What ends a stream and is not the response's own failure: an event that both specifications know."""

    async def breaks() -> AsyncIterator[Any]:
        yield {"type": "response.queued", "sequence_number": 4}
        raise ApiError(503, "the disk is full", "service_unavailable", code="full")

    async def parts() -> list[bytes]:
        return [part async for part in routes._encoded(breaks())]

    first, error, last = asyncio.run(parts())
    assert first.startswith(b"event: response.queued\n") and last == b"data: [DONE]\n\n"
    name, data = error.decode().strip().split("\n")
    assert name == "event: error"
    found = strict(ResponseErrorEvent, data.removeprefix("data: ").encode())
    assert (found.sequence_number, found.message, found.code) == (5, "the disk is full", "full")
    assert OPEN_EVENTS.validate_json(data.removeprefix("data: ")).error.message == "the disk is full"


def test_the_client_raises_an_error_event(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> bool:
        raise ApiError(503, "the disk is full", "service_unavailable")

    monkeypatch.setattr(run.Run, "_keep", fails)
    live.adopt("scripted", lambda: Scripted([said(text="yes"), done()]))
    with pytest.raises(openai.APIError, match="the disk is full"):
        list(official_client(live).responses.create(model="scripted", input="x", stream=True))
    live.models.entries.pop("scripted")
