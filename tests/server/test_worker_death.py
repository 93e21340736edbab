"""A worker that is killed, seen over HTTP: its own streams end with an error in their API's shape, and no others."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.types.shared import ErrorResponse
from anthropic_objects import strict
from live_server import PATIENCE, Live, serving

from llamina.server.config import Config, ModelProfile
from llamina.server.model import WorkerModel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal")
STREAMS = 16
HI = [{"role": "user", "content": "hi"}]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
LONG = 8000  # tokens: none of the streams that are to be killed ends before
GREEDY = {"temperature": 0}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI, "max_tokens": LONG, **GREEDY},
    "/v1/completions": {"prompt": "Once", "max_tokens": LONG, **GREEDY},
    "/v1/messages": {"messages": HI, "max_tokens": LONG, **GREEDY},
    "/api/chat": {"messages": HI, "options": {"num_predict": LONG, **GREEDY}},
    "/api/generate": {"prompt": "Once", "options": {"num_predict": LONG, **GREEDY}},
    "/v1/responses": {"input": "hi", "max_output_tokens": LONG, **GREEDY},
}
OTHERS = {"model": "b", "prompt": "Once upon a time", "max_tokens": 2500, "ignore_eos": True, **GREEDY}


class Reader(threading.Thread):
    """Reads a stream to its end. `begun`: the first part is there; `status` and `text`: what came."""

    def __init__(self, live: Live, path: str, body: dict[str, Any]) -> None:
        super().__init__()
        self.path, self._url, self._body = path, live.url + path, body | {"stream": True}
        self.begun, self.status, self.text = threading.Event(), 0, ""

    def run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=PATIENCE) as response:
            self.status = response.status_code
            for part in response.iter_text():
                self.text += part
                self.begun.set()

    @property
    def parts(self) -> list[str]:
        """Events, or lines of Ollama's."""
        return self.text.strip().split("\n" if self.path.startswith("/api/") else "\n\n")


@pytest.fixture
def served(golden: Callable[[str], Path], tmp_path: Path) -> Iterator[Live]:
    """Two models in workers of their own; they never say that a story ends."""
    profile = ModelProfile(
        model=str(golden("stories260K.gguf")), threads=1, context=8192, max_sequences=STREAMS, chat_template=TEMPLATE,
        sampling={"banned_tokens": [1, 2]},
    )  # fmt: skip
    with serving({}, Config(data=str(tmp_path), models={"a": profile, "b": profile})) as live:
        yield live


def worker(live: Live, id: str) -> WorkerModel:
    model = live.models.entries[id].model
    assert isinstance(model, WorkerModel)
    return model


def check_error(reader: Reader) -> None:
    """A stream that had begun ends with an error in its API's shape."""
    told, kind, last = "the model's process was killed by signal 9", reader.path, reader.parts[-1]
    assert reader.status == 200 and len(reader.parts) > 1
    if kind == "/v1/messages":
        name, data = last.split("\n")
        error = strict(ErrorResponse, data.removeprefix("data: "))
        assert name == "event: error" and (error.error.type, error.error.message) == ("overloaded_error", told)
    elif kind.startswith("/api/"):
        assert json.loads(last) == {"error": told}
        assert not any(json.loads(line)["done"] for line in reader.parts[:-1])
    elif kind == "/v1/responses":
        assert reader.parts[-1] == "data: [DONE]"
        name, data = reader.parts[-2].split("\n")
        failed = json.loads(data.removeprefix("data: "))["response"]
        assert name == "event: response.failed" and failed["status"] == "failed"
        assert failed["error"] == {"code": "server_error", "message": told}
    else:
        error = json.loads(last.removeprefix("data: "))
        fields = {"message": told, "type": "service_unavailable", "param": None, "code": "model_lost"}
        assert error == {"error": fields}


def test_a_worker_that_is_killed_in_the_middle_of_16_streams(served: Live) -> None:
    """Each ends with an error event, the next request is answered by a new worker, another model never notices."""
    story = {"model": "a", "prompt": "Once upon a time", "max_tokens": 20, **GREEDY}
    expected = served.post("/v1/completions", story).json()["choices"][0]["text"]
    alone = Reader(served, "/v1/completions", OTHERS)
    alone.run()
    paths = list(BODIES)
    killed = [Reader(served, path, BODIES[path] | {"model": "a"}) for path in (paths * 3)[:STREAMS]]
    others = [Reader(served, "/v1/completions", OTHERS) for _ in range(4)]
    for readers in (killed, others):
        for reader in readers:
            reader.start()
        assert all(reader.begun.wait(PATIENCE) for reader in readers)
    pids = {id: worker(served, id).pid for id in ("a", "b")}
    assert pids["a"] is not None and worker(served, "a").active == STREAMS and worker(served, "b").active == 4
    os.kill(pids["a"], signal.SIGKILL)
    for reader in killed:  # by then the server knows
        reader.join(PATIENCE)
    next_one = served.post("/v1/completions", story)
    assert next_one.status_code == 200 and next_one.json()["choices"][0]["text"] == expected
    assert worker(served, "a").pid != pids["a"] and worker(served, "b").pid == pids["b"]
    for reader in [*killed, *others]:
        reader.join(PATIENCE)
    for reader in killed:
        check_error(reader)
    for reader in others:
        assert said(reader) == said(alone) and reader.parts[-1] == "data: [DONE]"
    for path, body in BODIES.items():
        short = json.loads(json.dumps(body | {"model": "a", "stream": False}).replace(str(LONG), "3"))
        assert served.post(path, short).status_code == 200
    assert worker(served, "a").active == worker(served, "b").active == 0


def said(reader: Reader) -> str:
    events = [json.loads(part.removeprefix("data: ")) for part in reader.parts[:-1]]
    return "".join(event["choices"][0]["text"] for event in events)
