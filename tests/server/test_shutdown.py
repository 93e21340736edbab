"""The end of a server, and of the processes that it has started."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from live_server import wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends POSIX signals")
ENDLESS = {"prompt": "Once", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True, "stream": True}


class Started:
    """`llamina serve` in a process."""

    def __init__(self, *args: str) -> None:
        command = [sys.executable, "-m", "llamina", "serve", "--port", "0", *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"listening on (http://127.0.0.1:\d+)", line)
        assert found is not None, line
        self.url = found[1]

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ready(self) -> "Started":
        def answers() -> bool:
            try:
                return httpx.get(f"{self.url}/health").status_code == 200
            except httpx.TransportError:
                return False

        assert wait_for(answers, 60)
        return self


@pytest.fixture
def model(golden: Any) -> Path:
    path: Path = golden("stories260K.gguf")
    return path


@pytest.fixture
def started(model: Path, tmp_path: Path) -> Iterator[Any]:
    servers: list[Started] = []

    def start(*args: str) -> Started:
        servers.append(Started(f"tiny={model}", "-t", "1", "--data", str(tmp_path), *args))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()
        if server.process.stderr is not None:
            server.process.stderr.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_orderly_end(started: Any, how: signal.Signals) -> None:
    """New requests are refused, streams under way end with an error event after the grace period, workers end."""
    server = started("--grace", "500ms").ready()
    workers = server.workers()
    assert workers
    with httpx.stream("POST", f"{server.url}/v1/completions", json=ENDLESS, timeout=30) as got:
        lines = got.iter_lines()
        next(lines)
        began = time.monotonic()
        server.process.send_signal(how)
        last = [line for line in lines if line][-1]
    assert 0.4 < time.monotonic() - began < 20
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["code"] == "shutting_down" and "shutting down" in error["message"]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url}/health")
    assert server.process.wait(20) in (0, 128 + how, -how)
    assert wait_for(lambda: not any(worker.is_running() for worker in workers))


def test_an_answer_that_ends_in_time_is_whole(started: Any) -> None:
    server = started("--grace", "20s").ready()
    body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30) as got:
        lines = got.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    server.process.wait(20)


def test_the_second_signal_ends_it_at_once(started: Any) -> None:
    server = started("--grace", "60s").ready()
    workers = server.workers()
    with httpx.stream("POST", f"{server.url}/v1/completions", json=ENDLESS, timeout=30) as got:
        lines = got.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: not _listens(server.url))
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 128 + signal.SIGTERM
    assert wait_for(lambda: not any(worker.is_running() for worker in workers))


def _listens(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("ready", [True, False], ids=["loaded", "loading"])
def test_workers_end_when_the_server_is_killed(started: Any, ready: bool) -> None:
    server = started()
    assert wait_for(lambda: bool(server.workers()), 30)
    if ready:
        server.ready()
    workers = server.workers()
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(10)
    assert wait_for(lambda: not any(worker.is_running() for worker in workers), 30)


def test_a_profile_acts(model: Path, tmp_path: Path) -> None:
    """Template, sampling defaults, context and aliases reach the engine in its process; so does the log's format."""
    (tmp_path / "models").mkdir()
    (tmp_path / "config.toml").write_text(f'data = "{tmp_path}"\nlog_format = "json"\n[defaults]\nthreads = 1\n')
    (tmp_path / "models" / "tiny.toml").write_text(
        f'model = "{model}"\naliases = ["gpt-4o"]\ncontext = 128\n'
        "sampling = { temperature = 0.0 }\nchat_template = 'Once {{ messages[0].content }}'\nkeep_alive = 300\n"
    )
    server = Started("--config", str(tmp_path / "config.toml"))
    try:
        server.ready()
        meta = httpx.get(f"{server.url}/v1/models/gpt-4o").json()["meta"]
        assert meta["n_ctx"] == 128 and meta["status"] == "ready"
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "upon a time"}], "max_tokens": 12}
        url = f"{server.url}/v1/chat/completions"
        answers = [httpx.post(url, json=body, timeout=60).json() for _ in range(2)]
        plain = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
        expected = httpx.post(f"{server.url}/v1/completions", json=plain, timeout=60).json()["choices"][0]["text"]
        assert [answer["choices"][0]["message"]["content"].strip() for answer in answers] == [expected.strip()] * 2
    finally:
        server.process.send_signal(signal.SIGTERM)
        _, errors = server.process.communicate(timeout=30)
    lines = [json.loads(line) for line in errors.splitlines()]
    asked = [line for line in lines if line.get("route") == "/v1/chat/completions"]
    assert [line["model"] for line in asked] == ["tiny", "tiny"] and asked[0]["completion_tokens"] == 12
