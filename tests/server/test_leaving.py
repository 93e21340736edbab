"""A client that leaves in the middle of a step leaves nothing half done: what is kept is worked on, or ended."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from live_server import Live, Scripted, done, said, wait_for
from protected_server import Silent

from llamina.server.jobs import Jobs

Leave = Callable[..., None]


@pytest.fixture
def leave(stage: Live, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Sends a request and leaves when a method of the server has done its work, before the handler goes on."""
    stage.adopt("quick", lambda: Scripted([said(text="yes"), done()]))

    def leaving(holder: Any, method: str, path: str, body: Any, content_type: str = "application/json") -> None:
        gate, reached, real = asyncio.Event(), threading.Event(), getattr(holder, method)

        async def held(*args: Any, **options: Any) -> Any:
            found = await real(*args, **options)
            reached.set()
            await gate.wait()
            return found

        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        where = urlsplit(stage.url)
        head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: {content_type}\r\n"
        with monkeypatch.context() as patch:
            patch.setattr(holder, method, held)
            with socket.create_connection((where.hostname, where.port)) as client:
                client.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
                assert reached.wait(20)
            assert wait_for(lambda: stage.server.requests.active == 0), "the handler is cancelled"
        stage.call(_open(gate))

    return leaving


async def _open(gate: asyncio.Event) -> None:
    gate.set()


def get(stage: Live, path: str) -> Any:
    return httpx.get(stage.url + path).json()


def test_a_background_response_is_made(stage: Live, leave: Leave) -> None:
    before = {one["id"] for one in get(stage, "/v1/responses")["data"]}
    leave(stage.server.store, "insert", "/v1/responses", {"model": "quick", "input": "x", "background": True})
    assert wait_for(lambda: new(stage, before)["status"] == "completed")


def new(stage: Live, before: set[str]) -> Any:
    """The one response that was not there before."""
    (found,) = [one for one in get(stage, "/v1/responses")["data"] if one["id"] not in before]
    return found


HI = [{"role": "user", "content": "hi"}]
CHAT = {"model": "quick", "messages": HI}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}


def test_a_batch_is_run(stage: Live, leave: Leave) -> None:
    leave(stage.server.store, "insert_all", "/v1/batch_jobs", {"input_jsonl": json.dumps(LINE)})
    assert wait_for(lambda: get(stage, "/v1/batches")["data"][0]["status"] == "completed")


def test_a_file_that_is_listed_can_be_read(stage: Live, leave: Leave) -> None:
    part = 'Content-Disposition: form-data; name="{}"'
    form = (
        f'--x\r\n{part.format("purpose")}\r\n\r\nuser_data\r\n--x\r\n{part.format("file")}; filename="a"\r\n\r\nabc\r\n'
    )
    leave(stage.server.store, "insert_all", "/v1/files", f"{form}--x--\r\n".encode(), "multipart/form-data; boundary=x")
    id = get(stage, "/v1/files")["data"][0]["id"]
    assert httpx.get(f"{stage.url}/v1/files/{id}/content").text == "abc"


def test_a_run_is_worked_on(stage: Live, leave: Leave) -> None:
    thread = stage.post("/v1/threads", {"messages": HI}).json()["id"]
    assistant = stage.post("/v1/assistants", {"model": "quick"}).json()["id"]
    last = {"type": "last_messages", "last_messages": 5}
    body = {"assistant_id": assistant, "truncation_strategy": last}
    leave(stage.server.store, "write", f"/v1/threads/{thread}/runs", body)
    assert wait_for(lambda: get(stage, f"/v1/threads/{thread}/runs")["data"][0]["status"] == "completed")


def test_metadata_that_come_slowly_change_nothing_else(stage: Live) -> None:
    """The run ends between the head of the request and its body."""
    stage.adopt("silent", lambda: Silent([]))
    thread = stage.post("/v1/threads", {"messages": HI}).json()["id"]
    assistant = stage.post("/v1/assistants", {"model": "silent"}).json()["id"]
    run = stage.post(f"/v1/threads/{thread}/runs", {"assistant_id": assistant}).json()["id"]
    path, where = f"/v1/threads/{thread}/runs/{run}", urlsplit(stage.url)
    assert wait_for(lambda: get(stage, path)["status"] == "in_progress")
    data = b'{"metadata": {"a": "b"}}'
    with socket.create_connection((where.hostname, where.port)) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data[:5])
        assert wait_for(lambda: stage.server.requests.active == 1)
        get(stage, path)  # whatever the other request reads first, it has read by now
        assert stage.post(f"{path}/cancel", {}).json()["status"] == "cancelled"
        client.sendall(data[5:])
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    found = get(stage, path)
    assert found["status"] == "cancelled" and found["metadata"] == {"a": "b"} and found["cancelled_at"]


def test_a_job_that_ends_does_not_forget_the_next_of_its_object() -> None:
    async def scene() -> None:
        jobs, gate = Jobs(), asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        jobs.start("a", asyncio.sleep(0))
        jobs.start("a", wait(), state="the second")
        await asyncio.sleep(0.01)
        assert jobs.running("a") and jobs.state("a") == "the second"
        assert await jobs.cancel("a") and not jobs.running("a")

    asyncio.run(scene())
