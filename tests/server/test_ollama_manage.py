"""Models that are pulled, created, copied and deleted through Ollama's API."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from huggingface_hub import constants
from live_server import PATIENCE, Live, Scripted, done
from ollama import ProgressResponse

from fake_hub import serving
from llamina import hub
from llamina.errors import DownloadError, ModelNotFound
from llamina.server.model.frames import Generate
from llamina.server.model.process import GRACE

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def client(live: Live) -> Any:
    """A client; what a test makes is gone after it."""
    before = set(live.models.entries)
    yield ollama.Client(host=live.url, timeout=PATIENCE)
    for id in set(live.models.entries) - before:
        live.call(live.models.remove(live.models.entries[id]))


def names(client: ollama.Client) -> set[str]:
    return {model.model or "" for model in client.list().models}


# ---- pull ------------------------------------------------------------------------------------------------


def test_pull(
    live: Live, client: ollama.Client, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pull(name: str, progress: Any) -> Path:
        assert name == "gemma3-270m"
        for n in (0, 50, 100):
            progress(name, n, 100)
        return golden("stories260K.gguf")

    monkeypatch.setattr(hub, "pull", pull)
    response = live.post("/api/pull", {"model": "gemma3-270m:latest"})
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [ProgressResponse.model_validate_json(line, strict=True) for line in response.text.splitlines()]
    assert [line.status for line in lines] == ["pulling manifest", *["pulling gemma3-270m"] * 3, "success"]
    assert [(line.completed, line.total) for line in lines[1:-1]] == [(0, 100), (50, 100), (100, 100)]
    assert (lines[1].digest or "").startswith("sha256:")
    assert "gemma3-270m:latest" in names(client)
    assert client.pull("gemma3-270m").status == "success"  # again, at once


def test_pulled_model_answers(
    client: ollama.Client, golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = golden("stories260K.gguf").read_bytes()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with serving({"m-Q8_0.gguf": content}) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        lines = list(client.pull("hf.co/user/repo:Q8_0", stream=True))
    assert lines[-1].status == "success" and lines[-2].status == "pulling user/repo:Q8_0"
    assert lines[-2].completed == lines[-2].total == len(content)
    answer = client.generate("user/repo:Q8_0", "Once upon a time", options={"num_predict": 5, "temperature": 0})
    assert answer.eval_count == 5 and answer.load_duration > 0


def test_names_that_cannot_be_pulled(live: Live, client: ollama.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(name: str, progress: Any) -> Path:
        raise ModelNotFound(f"{name!r} cannot be pulled")

    monkeypatch.setattr(hub, "pull", pull)
    for stream in (False, True):
        response = live.post("/api/pull", {"model": "nobody", "stream": stream})
        assert response.status_code == 404 and "nobody" in response.json()["error"]
    for name in ("", "../../etc/passwd", "a b", "/etc/passwd", "x:y:z"):
        assert live.post("/api/pull", {"model": name}).status_code == 400


def test_pull_that_breaks(live: Live, client: ollama.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(name: str, progress: Any) -> Path:
        progress(name, 1, 2)
        raise DownloadError("the line is cut")

    monkeypatch.setattr(hub, "pull", pull)
    with pytest.raises(ollama.ResponseError, match="the line is cut"):
        list(client.pull("some", stream=True))
    with pytest.raises(ollama.ResponseError, match="the line is cut"):
        client.pull("some")
    assert "some:latest" not in names(client)


def test_pull_ends_when_the_client_leaves(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def pull(name: str, progress: Any) -> Path:
        try:
            while True:
                progress(name, 1, 2)
                time.sleep(0.02)
        finally:
            ended.set()

    monkeypatch.setattr(hub, "pull", pull)
    with httpx.stream("POST", f"{live.url}/api/pull", json={"model": "some"}, timeout=PATIENCE) as response:
        lines = response.iter_lines()  # the connection ends with it
        next(lines)
        assert not ended.is_set()
    assert ended.wait(5)


# ---- create, copy, delete --------------------------------------------------------------------------------


def test_created_model(live: Live, client: ollama.Client) -> None:
    made = client.create(
        "pirate:small",
        from_="smollm2",
        system="You are a pirate.",
        parameters={"temperature": 0, "num_predict": 6, "stop": ["!", "?"], "num_ctx": 512},
        messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Arr"}],
        license="mine",
    )
    assert made.status == "success" and "pirate:small" in names(client)
    shown = client.show("pirate:small")
    assert shown.details.parent_model == "smollm2" and shown.license == "mine"
    assert (
        "num_predict                    6" in shown.parameters and 'SYSTEM """You are a pirate."""' in shown.modelfile
    )
    profile = live.models.entries["pirate:small"].profile
    assert profile.context == 512 and profile.sampling == {"temperature": 0.0}

    answer = client.chat("pirate:small", HELLO)
    assert answer.eval_count <= 6
    whole = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Arr"},
        *HELLO,
    ]
    same = client.chat("smollm2", whole, options={"temperature": 0, "num_predict": 6, "stop": ["!", "?"]})
    assert (answer.message.content, answer.prompt_eval_count) == (same.message.content, same.prompt_eval_count)
    assert client.chat("pirate:small", HELLO, options={"num_predict": 2}).eval_count <= 2
    (running,) = [model for model in client.ps().models if model.model == "pirate:small"]
    assert running.context_length == 512
    start = time.monotonic()
    assert client.generate("pirate:small", keep_alive=0).done_reason == "unload"
    assert time.monotonic() - start < GRACE / 2  # its process ends by itself, and is not killed after a while


def test_created_with_a_template(live: Live, client: ollama.Client) -> None:
    model = live.adopt("base", lambda: Scripted([done()]))
    client.create("templated", from_="base", template="Q: {{ .Prompt }}\nA:{{ .Response }}\n", system="S")
    live.models.entries["templated"].model = model
    client.chat("templated", [*HELLO, {"role": "assistant", "content": " Hi"}, *HELLO])
    client.generate("templated", "Hello")
    assert isinstance(model, Scripted)
    assert [frame.prompt for frame in model.asked if isinstance(frame, Generate)] == [
        "Q: Hello\nA: Hi\nQ: Hello\nA:",
        "Q: Hello\nA:",
    ]
    with pytest.raises(ollama.ResponseError, match="template"):
        client.chat("templated", HELLO, think=True)
    live.models.entries["templated"].model = None


def test_created_from_a_created_one(live: Live, client: ollama.Client) -> None:
    client.create("one", from_="smollm2", system="S", parameters={"temperature": 0.5, "top_k": 3})
    list(client.create("two", from_="one", parameters={"top_k": 9}, stream=True))
    profile = live.models.entries["two"].profile
    assert profile.sampling == {"temperature": 0.5, "top_k": 9}
    assert client.show("two").modelfile.count("SYSTEM") == 1
    client.create("two", from_="smollm2")  # what was created may be replaced
    assert live.models.entries["two"].profile.sampling == {}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"model": "x"}, 400, "from"),
        ({"model": "x", "from": "nobody"}, 404, "nobody"),
        ({"model": "smollm2", "from": "smollm2"}, 409, "smollm2"),
        ({"model": "../x", "from": "smollm2"}, 400, "model"),
        ({"model": "x", "from": "/etc/passwd"}, 404, "passwd"),
        ({"model": "x", "from": "smollm2", "files": {"a.gguf": "sha256:0"}}, 400, "files"),
        ({"model": "x", "from": "smollm2", "quantize": "q4_0"}, 400, "quantize"),
        ({"model": "x", "from": "smollm2", "parameters": {"warmth": 1}}, 400, "warmth"),
        ({"model": "x", "from": "smollm2", "template": "{{ .Tools }}"}, 400, "template"),
        ({"model": "x", "from": "smollm2", "messages": [{"role": "robot"}]}, 400, "role"),
    ],
)
def test_models_that_cannot_be_created(live: Live, body: dict[str, Any], status: int, named: str) -> None:
    response = live.post("/api/create", body)
    assert response.status_code == status and named in response.json()["error"]


def test_copy_and_delete(live: Live, client: ollama.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(hub, "remove", lambda model: removed.append(model.name))
    client.create("first", from_="smollm2", system="S")
    client.copy("first", "second")
    assert client.show("second").modelfile.count("SYSTEM") == 1
    client.delete("first:latest")
    assert names(client) & {"first:latest", "second:latest"} == {"second:latest"}
    client.delete("second")
    assert not removed  # smollm2 has the file, too
    live.adopt("lonely", lambda: Scripted([done()]))
    client.delete("lonely")
    assert not removed and "lonely:latest" not in names(client)  # a file that was not pulled stays


def test_deleting_the_last_user_of_a_pulled_file(
    client: ollama.Client, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    pulled = hub.Model("tiny", golden("stories260K.gguf").with_name("other.gguf"))
    monkeypatch.setattr(hub, "pull", lambda name, progress: pulled.path)
    monkeypatch.setattr(hub, "models", lambda: [pulled])
    monkeypatch.setattr(hub, "remove", lambda model: removed.append(model.name))
    client.pull("tiny")
    client.copy("tiny", "twin")
    client.delete("tiny")
    assert not removed
    client.delete("twin")
    assert removed == ["tiny"]


def test_model_in_use_is_not_deleted(live: Live, client: ollama.Client) -> None:
    live.adopt("busy", lambda: Scripted([]))
    entry = live.models.entries["busy"]
    entry.users += 1
    with pytest.raises(ollama.ResponseError, match="use"):
        client.delete("busy")
    entry.users -= 1
    client.delete("busy")
