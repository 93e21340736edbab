"""Responses in the background: followed, cancelled, deleted, and finished once after the server was killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest
from live_server import PATIENCE, Live, Scripted, done, said, wait_for
from responses_objects import GREEDY, QUESTION, check_order, official_client, raw_events, strict_response

from llamina.server.model.frames import Chunks, Generate, ToModel

ENDLESS: Any = {"ignore_eos": True, "context_shift": True, "max_tokens": 100_000}


@pytest.fixture(scope="module")
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


class Held(Scripted):
    """A model that says its first chunk, and the others when it is released."""

    def send(self, frame: ToModel) -> None:
        if isinstance(frame, Generate):
            self.asked.append(frame)
            self._say(frame, self.chunks[:1])
        else:
            super().send(frame)

    def _say(self, frame: Generate, chunks: list[Any]) -> None:
        for chunk in chunks:
            self._loop.call_soon(self.receive, Chunks([msgspec.structs.replace(chunk, id=frame.id)]))

    async def release(self) -> None:
        frame = self.asked[-1]
        assert isinstance(frame, Generate)
        self._say(frame, self.chunks[1:])


@pytest.fixture
def held(live: Live) -> Iterator[Held]:
    model = live.adopt("held", lambda: Held([said(text="one"), said(text=" two"), done()]))
    assert isinstance(model, Held)
    yield model
    live.models.entries.pop("held", None)


def finished(client: openai.OpenAI, id: str) -> Any:
    assert wait_for(lambda: client.responses.retrieve(id).status not in ("queued", "in_progress"))
    return strict_response(client.responses.retrieve(id).to_dict())


def test_made_in_the_background(client: openai.OpenAI) -> None:
    begun = client.responses.create(model="smollm2", input=QUESTION, background=True, **GREEDY)
    assert strict_response(begun.to_dict()).status == "queued" and begun.background
    whole = client.responses.create(model="smollm2", input=QUESTION, **GREEDY)
    assert finished(client, begun.id).output_text == whole.output_text
    follow = client.responses.create(model="smollm2", input="And of Peru?", previous_response_id=begun.id, **GREEDY)
    assert follow.usage is not None and whole.usage is not None
    assert follow.usage.input_tokens > whole.usage.input_tokens


def get_stream(live: Live, id: str, after: int = -1) -> list[Any]:
    url = f"{live.url}/v1/responses/{id}?stream=true" + (f"&starting_after={after}" if after >= 0 else "")
    return raw_events(httpx.get(url, timeout=PATIENCE).text)


def test_followed_by_several(client: openai.OpenAI, live: Live, held: Held) -> None:
    """One leaves in the middle, which ends nothing; others begin late, and where they want."""
    stream = client.responses.create(model="held", input="x", background=True, stream=True)
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    id = seen[0].response.id  # type: ignore[union-attr]
    assert client.responses.retrieve(id).status == "in_progress"
    with pytest.raises(openai.BadRequestError, match="in_progress"):
        client.responses.create(model="held", input="y", previous_response_id=id)
    with client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number) as late:
        live.call(held.release())
        rest = list(late)
    assert [event.sequence_number for event in rest][:1] == [len(seen)]
    all_events = get_stream(live, id)
    check_order(all_events)
    assert [event.type for event in all_events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert [e.to_dict() for e in all_events] == [e.to_dict() for e in [*seen, *rest]]
    assert [e.to_dict() for e in get_stream(live, id, 3)] == [e.to_dict() for e in all_events[4:]]
    assert finished(client, id).output_text == "one two"


def test_only_some_can_be_streamed_again(client: openai.OpenAI, live: Live) -> None:
    kept = client.responses.create(model="smollm2", input=QUESTION, **GREEDY)
    for query in ("stream=true", "starting_after=1", "stream=true&starting_after=x", "stream=maybe", "other=1"):
        answer = httpx.get(f"{live.url}/v1/responses/{kept.id}?{query}")
        assert answer.status_code == 400 and answer.json()["error"]["param"] in query


def test_cancelled_at_once(client: openai.OpenAI, live: Live) -> None:
    stream = client.responses.create(model="smollm2", input=QUESTION, background=True, stream=True, extra_body=ENDLESS)
    events = []
    for event in stream:
        events.append(event)
        if len(events) == 8:
            id = events[0].response.id  # type: ignore[union-attr]
            cancelled = client.responses.cancel(id)
    assert wait_for(lambda: live.idle("smollm2"))
    assert strict_response(cancelled.to_dict()).status == "cancelled" and cancelled.output_text
    check_order(events)
    assert events[-1].type == "response.incomplete" and events[-1].response.status == "cancelled"
    assert client.responses.cancel(id) == client.responses.retrieve(id) == cancelled, "twice is once"
    assert [e.to_dict() for e in get_stream(live, id)] == [e.to_dict() for e in events]


def test_what_cannot_be_cancelled(client: openai.OpenAI) -> None:
    kept = client.responses.create(model="smollm2", input=QUESTION, **GREEDY)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(kept.id)
    begun = client.responses.create(model="smollm2", input=QUESTION, background=True, **GREEDY)
    finished(client, begun.id)
    with pytest.raises(openai.BadRequestError, match="cannot be cancelled"):
        client.responses.cancel(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none")


def test_deleted_under_way(client: openai.OpenAI, live: Live) -> None:
    begun = client.responses.create(model="smollm2", input=QUESTION, background=True, extra_body=ENDLESS)
    assert wait_for(lambda: client.responses.retrieve(begun.id).status == "in_progress")
    client.responses.delete(begun.id)
    assert wait_for(lambda: live.idle("smollm2"))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_a_request_that_the_model_refuses(client: openai.OpenAI) -> None:
    begun = client.responses.create(model="smollm2", input="word " * 5000, background=True)
    failed = finished(client, begun.id)
    assert failed.status == "failed" and failed.error.code == "invalid_prompt" and "2048" in failed.error.message


# ---- a server that is killed -----------------------------------------------------------------------------


@contextmanager
def served(model: Path, data: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A server of its own process and data."""
    command = [sys.executable, "-m", "llamina", "serve", f"tiny={model}", "--port", "0", "-t", "1", "-c", "2048"]
    environment = os.environ | {"LLAMINA_DATA": str(data)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        assert wait_for(lambda: _healthy(url), 60)
        yield url, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal")
def test_a_server_that_is_killed(smollm2: Path, tmp_path: Path) -> None:
    """It makes the response after the restart, the same as without the kill, and brings it to its conversation once."""
    asked: dict[str, Any] = {"model": "tiny", "input": "Tell me a story.", "temperature": 1.0, "background": True}
    asked |= {"stream": True, "max_output_tokens": 40, "extra_body": {"seed": 7, "ignore_eos": True}}
    with served(smollm2, tmp_path) as (url, process):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        conversation = client.conversations.create(metadata={"about": "stories"}).id
        seen = []
        for event in client.responses.create(**asked, conversation=conversation):
            seen.append(event)
            if len(seen) == 10:
                process.send_signal(signal.SIGKILL)
                break
        process.wait(30)
        id = seen[0].response.id
    with served(smollm2, tmp_path) as (url, process):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        found = finished(client, id)
        assert found.status == "incomplete" and found.output_text
        items = list(client.conversations.items.list(conversation, order="asc"))
        assert [item.type for item in items] == ["message", "message"]
        assert items[1].id == found.output[0].id
        events = list(client.responses.retrieve(id, stream=True, starting_after=len(seen) - 1))
        assert [e.sequence_number for e in events][:1] == [len(seen)] and events[-1].type == "response.incomplete"
        text = "".join(e.delta for e in [*seen, *events] if e.type == "response.output_text.delta")
        assert text == found.output_text, "a client that follows on has the whole text"
        never_killed = client.responses.create(**asked | {"stream": False, "background": False})
        assert never_killed.output_text == found.output_text
        listed = httpx.get(f"{url}/v1/responses").json()["data"]
        assert [response["id"] for response in listed] == [never_killed.id, id]
