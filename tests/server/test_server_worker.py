"""A model in a process of its own: what it answers, its death, its end."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import llamina
from llamina.backends.host import giving_way
from llamina.engine import load
from llamina.errors import RequestError
from llamina.server.model import ModelError, WorkerModel
from llamina.server.model.frames import Chunks, Failed, Generate
from llamina.server.model.service import Service

GREEDY: dict[str, Any] = {"max_tokens": 20, "temperature": 0}


@pytest.fixture(scope="module")
def stories(golden: Any) -> Path:
    path: Path = golden("stories260K.gguf")
    return path


async def text_of(model: WorkerModel, prompt: str) -> str:
    return "".join([chunk.text async for chunk in model.generate(prompt=prompt, options=GREEDY)])


def test_a_worker_that_is_killed(stories: Path) -> None:
    """Its streams end with an error, and the next request is answered by a new worker.

    The server gives way to those that compute; its workers do not.
    """
    with llamina.load(stories, threads=1) as engine:
        expected = engine.generate("Once upon a time", **GREEDY).text

    async def scene() -> None:
        model = WorkerModel(str(stories), {"threads": 1, "context": 512})
        await model.start()
        assert await text_of(model, "Once upon a time") == expected
        endless = {"max_tokens": None, "ignore_eos": True, "context_shift": True}
        streams = [model.generate(prompt="Once", options=endless) for _ in range(16)]
        for stream in streams:
            await anext(stream)
        pid = model.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(ModelError, match="killed by signal 9"):
                async for _ in stream:
                    pass
        await model.wait_ready()
        assert model.pid != pid and await text_of(model, "Once upon a time") == expected
        if sys.platform == "linux":
            assert model.pid is not None
            assert [os.sched_getscheduler(process) for process in (0, model.pid)] == [os.SCHED_BATCH, os.SCHED_OTHER]
        await model.close()
        assert model.active == 0

    with giving_way():
        asyncio.run(asyncio.wait_for(scene(), 120))
    if sys.platform == "linux":
        assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"nothing")

    async def scene() -> None:
        model = WorkerModel(str(path), {})
        with pytest.raises(ModelError) as caught:
            await model.start()
        assert caught.value.info.kind == "ModelFileError"
        assert model.pid is not None and not psutil.pid_exists(model.pid), "and it is not tried again"

    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal")
def test_a_worker_that_is_killed_before_it_connects(stories: Path) -> None:
    """Nobody waits for it any longer; one that is to be there again is an error of the requests that wait for it."""

    async def killed(model: WorkerModel, not_this: int | None = None) -> None:
        while model.pid in (None, not_this):
            await asyncio.sleep(0.001)
        assert model.pid is not None
        os.kill(model.pid, signal.SIGKILL)

    async def scene() -> None:
        model = WorkerModel(str(stories), {"threads": 1})
        with pytest.raises(ModelError, match="was killed by signal 9 before it connected"):
            await asyncio.gather(model.start(), killed(model))
        model = WorkerModel(str(stories), {"threads": 1})
        await model.start()
        pid = model.pid
        await killed(model)
        await killed(model, pid)
        with pytest.raises(ModelError, match="was killed by signal 9 before it connected"):
            await model.wait_ready()
        await model.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal")
def test_serve_on_the_command_line(stories: Path) -> None:
    """It says where it listens, answers, and ends with its workers at Ctrl-C."""
    command = [
        sys.executable,
        "-m",
        "llamina",
        "serve",
        f"tiny={stories}",
        "--port",
        "0",
        "--alias",
        "gpt-4o",
        "-t",
        "1",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        assert url.startswith("http://127.0.0.1:")
        end = time.monotonic() + 60
        while httpx.get(f"{url}/health").status_code != 200 and time.monotonic() < end:
            time.sleep(0.05)
        body = {"model": "gpt-4o", "prompt": "Once", "max_tokens": 3}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200 and answer.json()["model"] == "tiny"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)


def test_answers_of_a_request_that_cannot_be_begun_end_alone(golden: Callable[[str], Path]) -> None:
    """Its answers are cancelled before they are queued: their last deltas come after it was given up."""
    engine = load(golden("stories260K.gguf"), threads=1)
    frames: queue.SimpleQueue[Any] = queue.SimpleQueue()
    service = Service(engine, frames.put)
    enqueue, prepared = engine.enqueue, list[Any]()

    def refuse(sequences: list[Any]) -> None:
        prepared.extend(sequences)
        raise RequestError("one of them was cancelled")

    engine.enqueue = refuse  # type: ignore[method-assign,assignment]
    service.handle(Generate(1, prompt="Once", n=2))
    failed = frames.get(timeout=20)
    while not isinstance(failed, Failed):
        failed = frames.get(timeout=20)
    for sequence in prepared:
        engine.stepper.call(engine.core.cancel, sequence)
    engine.enqueue = enqueue  # type: ignore[method-assign]
    service.handle(Generate(2, prompt="Once", options={"max_tokens": 2}))
    ended = False
    while not ended:
        frame = frames.get(timeout=20)
        chunks = frame.chunks if isinstance(frame, Chunks) else []
        ended = any(chunk.id == 2 and chunk.finish_reason for chunk in chunks)
    service.close()
