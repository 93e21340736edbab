"""What went wrong in other servers, each as a test that would have found it here.

Others of the kind are beside what they are about: model files in tests/gguf/test_gguf_lessons.py, tokens of hubs in
tests/hub, files of slots in test_native.py, pictures and sounds in test_server_pictures.py and test_server_sounds.py,
CORS and DNS rebinding in test_hosts.py, limits in test_limits.py, the end of a server in test_shutdown.py.
"""

import asyncio
import hmac
import json
import os
import pickle
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import wait_for
from protected_server import ADMIN, CLIENT, Protected, protected, templated

import llamina
from llamina.chat.validate import fits
from llamina.errors import RequestError, TemplateError
from llamina.grammar.compiler import CACHED
from llamina.server.config import Config
from llamina.server.model import LocalModel, WorkerModel
from llamina.server.protection import keys as keys_module
from llamina.server.protection.keys import Keys, hashed
from llamina.tokenizer.template import ChatTemplate

ROOT = Path(__file__).parents[2]
HI = [{"role": "user", "content": "hi"}]
OTHER = "sk-other"
UNTAUGHT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"  # a template that knows no calls


@pytest.fixture(scope="module")
def model_file(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return templated(golden("stories260K.gguf"), tmp_path_factory.mktemp("lessons") / "stories.gguf")


@pytest.fixture(scope="module")
def engine(model_file: Path) -> llamina.Engine:
    return llamina.load(model_file, threads=1, context=256, max_sequences=2, max_waiting=2)


@pytest.fixture(scope="module")
def server(engine: llamina.Engine, model_file: Path) -> Iterator[Protected]:
    with protected(api_keys=[CLIENT, OTHER], admin_key=ADMIN) as found:
        found.live.adopt("stories", lambda: LocalModel(engine))
        path = templated(model_file, model_file.with_name("untaught.gguf"), UNTAUGHT)
        untaught = llamina.load(path, threads=1, context=1024)
        found.live.adopt("untaught", lambda: LocalModel(untaught))
        yield found


def chat(server: Protected, key: str = CLIENT, **fields: Any) -> httpx.Response:
    body = {"model": "stories", "messages": HI, "max_tokens": 2, "temperature": 0, **fields}
    return server.ask("/v1/chat/completions", body, key)


def still_serves(server: Protected) -> bool:
    return chat(server).status_code == 200


# ---- model files and what comes with them ----------------------------------------------------------------


def test_cve_2024_37032_names_are_no_paths(server: Protected, tmp_path: Path) -> None:
    """Probllama: a digest or a name that leads out of the folder of models."""
    for name in ("../../etc/x", "/etc/passwd", "a/../../b", "..", "a\\..\\b", "a\x00b", "sha256:../x", ""):
        assert server.ask("/api/pull", {"model": name, "stream": False}, ADMIN).status_code == 400
        assert server.ask("/api/create", {"model": name, "from": "stories"}, ADMIN).status_code == 400
        copied = server.ask("/api/copy", {"source": "stories", "destination": name}, ADMIN)
        assert copied.status_code == 400
        assert server.manage("/admin/models/load", {"id": name, "path": "x"}, ADMIN).status_code == 400
    digest = "sha256:../../../" + "0" * 55
    assert server.ask(f"/api/blobs/{digest}", key=ADMIN, method="POST", content=b"x").status_code == 404


def test_cve_2026_7482_files_are_not_made_of_what_clients_upload(server: Protected) -> None:
    """Bleeding Llama: creating, quantizing and pushing a model whose header lies."""
    body = {"model": "new", "from": "stories", "files": {"a.gguf": "sha256:" + "0" * 64}}
    assert server.ask("/api/create", body, ADMIN).status_code == 400
    body = {"model": "new", "from": "stories", "quantize": "q4_0"}
    assert server.ask("/api/create", body, ADMIN).status_code == 400
    assert server.ask("/api/push", {"model": "stories"}, ADMIN).status_code == 404
    for path in ("/api/create", "/api/push", "/api/pull"):
        assert server.ask(path, {}, CLIENT).status_code == 403


TRICKS = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ messages|attr('__class__')|attr('__base__') }}",
    "{{ ''|attr('format')('{0.__class__}') }}{{ '{0.__class__.__mro__}'.format('') }}",
    "{% set f = 'a{0.__class__.__init__.__globals__}'.format %}{{ f(cycler) }}",
    "{{ ['{0.__class__.__mro__}']|map('format', '')|list }}{{ (''.format_map)({}) }}{{ ''.__class__ }}",
    "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ strftime_now.__globals__['sys'] }}",
]


@pytest.mark.parametrize("source", TRICKS)
def test_cve_2024_34359_templates_stay_in_the_sandbox(source: str) -> None:
    """Also CVE-2026-5760 and CVE-2024-56326: nothing of the interpreter is reached."""
    try:
        text = ChatTemplate(source).render(HI)
    except TemplateError:
        return
    assert "class" not in text and "module" not in text and "root:" not in text and "uid=" not in text


def test_cve_2024_56326_the_sandbox_is_one_that_holds() -> None:
    """Sandboxes of Jinja before 3.1.6 could be left by `format` and `attr`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "jinja2>=3.1.6" in project["project"]["dependencies"]


def test_cve_2026_5760_a_template_for_reranking_is_not_run(engine: llamina.Engine) -> None:
    """Its two places are filled in; nothing in it, or in a client's text, is a program."""
    sources = [path.read_text() for path in (ROOT / "src/llamina").rglob("*.py")]
    assert sum("SandboxedEnvironment" in text for text in sources) == 1
    assert not any("jinja2.Environment" in text or "import Environment" in text for text in sources)
    with pytest.raises((RequestError, llamina.LlaminaError)):
        engine.rerank("{{ 7 * 7 }}", ["{% for x in range(99999) %}{% endfor %}"])


class Pickled:
    """Whoever unpickles it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_cve_2024_42477_workers_take_no_pickles_and_no_strangers(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The RPC server of llama.cpp believed whoever came, and whatever came over the wire."""
    refused: list[Exception] = []

    class Besieged(Listener):
        """The place where a worker is waited for, at which strangers come first."""

        def accept(self) -> Any:
            if not refused:
                threading.Thread(target=self._intrude).start()
            return super().accept()

        def _intrude(self) -> None:
            try:
                Client(self.address, authkey=b"wrong")
            except (AuthenticationError, EOFError, OSError) as error:
                refused.append(error)

    async def scene() -> None:
        worker = WorkerModel(str(model_file), {"threads": 1, "context": 64})
        await worker.start()
        assert refused and worker._transport is not None
        pid, data = worker.pid, pickle.dumps(Pickled(tmp_path / "made"))
        worker._transport.write(len(data).to_bytes(4, "big") + data)
        while worker.pid == pid:  # what is no frame ends the worker
            await asyncio.sleep(0.01)
        await worker.wait_ready()
        assert (await worker.call("tokenize", text="x"))["tokens"]
        await worker.close()

    monkeypatch.setattr("llamina.server.model.process.Listener", Besieged)
    asyncio.run(asyncio.wait_for(scene(), 120))
    assert not (tmp_path / "made").exists()


# ---- numbers, keys, scopes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["n_keep", "top_k", "n", "repeat_last_n", "max_tokens", "seed", "min_tokens", "priority"]
)
def test_cve_2026_21869_negative_numbers(name: str, server: Protected) -> None:
    """`n_discard: -1` wrote out of bounds. All numbers: test_numbers.py."""
    for value in (-1, -2, -(2**31), -(2**63)):
        assert chat(server, **{name: value}).status_code in (200, 400)
    assert still_serves(server)


def test_cve_2025_59425_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every known hash is compared by `compare_digest`, whichever of them fits: the time it takes tells nothing."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    known = Keys(Config(api_keys=[f"key {i}" for i in range(5)], admin_key=ADMIN))
    monkeypatch.setattr(keys_module, "hmac", type("Module", (), {"compare_digest": staticmethod(compare)}))
    for shown in ("key 0", "key 4", "none", "", ADMIN):
        compared.clear()
        known.find(shown)
        assert len(compared) == 6 and all(one == hashed(shown).encode() for one, _ in compared)


@pytest.mark.parametrize(
    "path",
    [
        "/invocations",
        "/pause",
        "/resume",
        "/abort_requests",
        "/update_weights",
        "/tokenize",
        "/detokenize",
        "/reset",
        "/slots",
        "/props",
        "/metrics",
        "/v2/models",
        "/inference/x",
        "/lora-adapters",
        "/api/ps",
        "/docs",
        "/.env",
    ],
)
def test_auth_covers_every_path_and_not_only_v1(path: str, server: Protected) -> None:
    for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"):
        assert server.ask(path, method=method).status_code == 401
        assert server.ask(path + "/", method=method).status_code == 401


@pytest.mark.parametrize(
    "path", ["/health/../v1/models", "//v1/models", "/HEALTH", "/health%2f..%2fv1/models", "/health/"]
)
def test_auth_is_not_passed_by_other_spellings(path: str, server: Protected) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        status = connection.makefile("rb").readline().split()[1]
    assert status in (b"401", b"307", b"404") and status != b"200"


# ---- templates, schemas, grammars ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"tokenize": True},
        {"messages": []},
        {"tools": 5},
        {"self": 1},
        {"add_generation_prompt": "no"},
        {"bos_token": 5},
        {"chat_template": "{{ 1 }}"},
        {"range": 5},
        {"__class__": 1},
    ],
)
def test_cve_2025_62426_options_of_templates(given: Any, server: Protected) -> None:
    """`chat_template_kwargs` could switch the tokenizer on in the event loop."""
    assert chat(server, chat_template_kwargs=given).status_code in (200, 400)
    assert still_serves(server)


def test_cve_2025_61620_clients_bring_no_templates(server: Protected) -> None:
    refused = chat(server, chat_template="{% for a in range(99999) %}{% endfor %}")
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "chat_template"


def test_cve_2025_62426_a_template_that_loops_stops_nobody(model_file: Path, server: Protected) -> None:
    """It is an error of the request, and other requests are answered meanwhile."""
    path = model_file.with_name("loops.gguf")
    templated(model_file, path, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    looping = llamina.load(path, threads=1, context=64)
    server.live.adopt("loops", lambda: LocalModel(looping))
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(chat(server, model="loops")))
    thread.start()
    started = time.monotonic()
    assert still_serves(server)
    thread.join(60)
    assert answers[0].status_code == 400 and "takes too long" in answers[0].text
    assert time.monotonic() - started < 60


BAD_SCHEMAS = [
    {"type": "string", "pattern": "(("},
    {"type": "something"},
    {"type": 5},
    {"$ref": "#/nowhere"},
    {"$ref": "http://127.0.0.1:1/schema.json"},
    {"$ref": "file:///etc/passwd"},
    {"properties": []},
    {"enum": "x"},
    {"minLength": -1, "type": "string"},
    {"type": "array", "items": 7},
    {"type": "string", "pattern": "(?<=a)b"},
    {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"},
    {"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(8)]} for i in range(12)]},
]


@pytest.mark.parametrize("schema", BAD_SCHEMAS, ids=lambda s: json.dumps(s)[:40])
def test_cve_2025_48944_schemas_that_are_none(schema: Any, server: Protected) -> None:
    """A bad `pattern` or `type` in a tool killed the worker."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}
    started = time.monotonic()
    assert chat(server, tools=[tool], tool_choice="required").status_code in (200, 400)
    assert chat(server, tools=[tool]).status_code in (200, 400)
    assert chat(server, json_schema=schema).status_code in (200, 400)
    ollama = {"model": "stories", "messages": HI, "format": schema, "stream": False, "options": {"num_predict": 2}}
    assert server.ask("/api/chat", ollama, CLIENT).status_code in (200, 400)
    assert time.monotonic() - started < 30 and still_serves(server)


@pytest.mark.parametrize("schema", [*BAD_SCHEMAS, "", "{", [], 5, None], ids=lambda s: json.dumps(s)[:40])
def test_cve_2025_48942_schemas_that_are_none_in_completions(schema: Any, server: Protected) -> None:
    """One that was not valid killed the server, by whichever of its names it came."""
    body = {"model": "stories", "prompt": "x", "max_tokens": 2}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    given = {"json_schema": schema, "guided_json": schema, "response_format": format}
    for name, value in given.items():
        assert server.ask("/v1/completions", body | {name: value}, CLIENT).status_code in (200, 400)
        assert chat(server, **{name: value}).status_code in (200, 400)
    assert server.ask("/completion", body | {"json_schema": schema}, CLIENT).status_code in (200, 400)
    assert still_serves(server)


def doubling(first: str, rule: str, levels: int) -> str:
    return "\n".join([first, *(rule.format(n=i + 1, m=i) for i in range(levels))])


GRAMMARS = {
    "gbnf doubling": {"grammar": doubling('root ::= a60\na0 ::= "x" | "y"', "a{n} ::= a{m} a{m}", 60)},
    "lark doubling": {"lark": doubling('start: A60\nA0: "x" | "y"', "A{n}: A{m} A{m}", 60)},
    "gbnf repetitions": {"grammar": 'root ::= ((("a" | "b"){1,2000}){1,2000}){1,2000}'},
    "gbnf brackets": {"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000},
    "gbnf recursion": {"grammar": 'root ::= root root | "a"'},
    "gbnf without an end": {"grammar": "root ::= root"},
    "gbnf classes": {"grammar": "root ::= " + "[a-z]* " * 2000},
    "regex nested": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "regex backtracking": {"regex": "^(a+)+$"},
    "regex brackets": {"regex": "(" * 5000 + ")" * 5000},
    "regex counted": {"regex": ".*a.{2000}"},
    "lark empty": {"lark": "start: start start | "},
    "many choices": {"choices": [f"choice {i}" for i in range(3000)]},
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_cve_2025_48943_grammars_that_explode(name: str, server: Protected) -> None:
    """An answer or a 400, within bounded time, and nobody else is held up for ever."""
    started = time.process_time()
    assert chat(server, **GRAMMARS[name]).status_code in (200, 400)
    assert time.process_time() - started < 20 and still_serves(server)


def test_cve_2025_48887_patterns_are_matched_in_linear_time() -> None:
    """A tool parser's backtracking expression met text that the model had made."""
    started = time.process_time()
    text = "a" * 5000 + "!"
    for pattern in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", r"^(\w+\s?)*$", "(.*)*x$"):
        assert not fits(text, {"pattern": pattern})
        assert fits({text: 1}, {"patternProperties": {pattern: False}})
        assert fits("aaaa", {"pattern": "^a+$"})
    deep: dict[str, Any] = {"$defs": {f"a{i + 1}": {"allOf": [{"$ref": f"#/$defs/a{i}"}] * 2} for i in range(60)}}
    deep["$defs"]["a0"], deep["$ref"] = {}, "#/$defs/a60"
    assert not fits(1, deep)
    assert time.process_time() - started < 5


def test_cve_2025_29770_compiled_grammars_fill_no_disk(
    server: Protected, engine: llamina.Engine, tmp_path: Path
) -> None:
    """A cache of grammars grew with every request: ours holds a bounded number, in memory."""
    for i in range(CACHED + 10):
        assert chat(server, regex=f"a{{1,{i + 2}}}").status_code == 200
    assert len(engine.runner.samplers._compiler._compiled) <= CACHED


# ---- what clients send beside text -----------------------------------------------------------------------


@pytest.mark.parametrize("field", ["prompt_embeds", "input_embeds", "multi_modal_data", "mm_processor_kwargs"])
def test_cve_2025_62164_no_tensors_are_taken(field: str, server: Protected) -> None:
    body = {"model": "stories", "prompt": "x", field: "gASVAAAAAAAAAA=="}
    assert server.ask("/v1/completions", body, CLIENT).status_code == 400
    assert chat(server, **{field: "gASV"}).status_code == 400


def test_ssrf_by_media_url(server: Protected) -> None:
    """No picture, file or schema of a client's URL is asked for: nobody connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.3)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.png"
        parts: list[Any] = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "file", "file": {"file_data": url}},
            {"type": "video_url", "video_url": {"url": url}},
            {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        ]
        for part in parts:
            assert chat(server, messages=[{"role": "user", "content": [part]}]).status_code == 400
        image = {"type": "image", "source": {"type": "url", "url": url}}
        document = {"type": "document", "source": {"type": "url", "url": url}}
        for block in (image, document):
            body = {"model": "stories", "max_tokens": 5, "messages": [{"role": "user", "content": [block]}]}
            assert server.ask("/v1/messages", body, CLIENT).status_code == 400
        ollama = {"model": "stories", "messages": [HI[0] | {"images": [url]}]}
        assert server.ask("/api/chat", ollama, CLIENT).status_code == 400
        assert chat(server, json_schema={"$ref": url}).status_code == 400
        servers = {"model": "stories", "max_tokens": 5, "messages": HI, "mcp_servers": [{"type": "url", "url": url}]}
        assert server.ask("/v1/messages", servers, CLIENT).status_code == 400
        assert server.ask("/api/pull", {"model": url, "stream": False}, ADMIN).status_code == 400
        with pytest.raises(TimeoutError):
            trap.accept()


# ---- conversations, queues, connections ------------------------------------------------------------------

HISTORIES: list[Any] = [
    [],
    [{}],
    [5],
    ["hi"],
    None,
    [None],
    [{"role": "user"}],
    [{"role": "nobody", "content": "x"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": {}}],
    [{"role": "user", "content": [5]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": None}]}],
    [{"role": ["user"], "content": "x"}],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "tool_calls": 5}],
    [{"role": "assistant", "tool_calls": [5]}],
    [{"role": "assistant", "tool_calls": [{"function": 5}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "x"}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "{"}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": 5, "arguments": []}}]}],
    [{"role": "tool", "content": "x"}],
    [{"role": "tool", "content": "x", "tool_call_id": 5}],
    [{"role": "user", "content": "\ud83d"}],
    [{"content": "x"}] * 3,
    {"role": "user", "content": "x"},
]


@pytest.mark.parametrize("messages", HISTORIES, ids=lambda m: ascii(m)[:50])
def test_malformed_history_is_4xx(messages: Any, server: Protected) -> None:
    """llama.cpp #25510. A template may read some of these in its own way; none is a mistake of ours."""
    tool = {"type": "function", "function": {"name": "x", "parameters": {}}}
    bodies = [
        ("/v1/chat/completions", {"max_tokens": 2}),
        ("/v1/messages", {"max_tokens": 2}),
        ("/api/chat", {"stream": False}),
    ]
    for path, more in bodies:
        for tools in ({}, {"tools": [tool]}):
            body = {"model": "stories", "messages": messages, **more, **tools}
            answer = server.ask(path, key=CLIENT, method="POST", content=json.dumps(body))
            assert answer.status_code < 500, (path, answer.text)
    assert still_serves(server)


def test_context_overflow_tells_the_counts(server: Protected) -> None:
    answer = server.ask("/v1/completions", {"model": "stories", "prompt": "word " * 2000, "max_tokens": 2}, CLIENT)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
    assert "256" in answer.json()["error"]["message"]


def test_a_full_queue_is_503_with_retry_after(server: Protected) -> None:
    """2 run, 2 wait, and the next is told to come again."""
    endless = {"model": "stories", "prompt": "x", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True}
    connections = []
    for n in range(4):
        connection = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        data = json.dumps(endless | {"stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {CLIENT}\r\nContent-Length: {len(data)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + data)
        connections.append(connection)
        model = server.live.models.entries["stories"].model
        assert model is not None and wait_for(lambda n=n, model=model: model.active == n + 1)  # type: ignore[misc]
    assert wait_for(lambda: len(_sequences(server)) == 4)
    refused = server.ask("/v1/completions", endless, CLIENT)
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
    for connection in connections[:2]:
        connection.close()
    for sequence in _sequences(server):
        server.manage(f"/admin/requests/stories/{sequence['id']}", key=ADMIN, method="DELETE")
    for connection in connections[2:]:
        connection.close()
    assert wait_for(lambda: not _sequences(server))


def _sequences(server: Protected) -> list[Any]:
    return [one for one in server.manage("/admin/requests", key=ADMIN).json()["data"] if one["model"] == "stories"]


def test_disconnect_ends_a_stream_in_the_engine(server: Protected, engine: llamina.Engine) -> None:
    """llama.cpp #24496: the callback that should have told of it was never called."""
    body = {"model": "stories", "prompt": "x", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True}
    headers = {"X-Api-Key": CLIENT}
    with httpx.stream("POST", server.url + "/v1/completions", json=body | {"stream": True}, headers=headers) as stream:
        next(stream.iter_raw())
    assert wait_for(lambda: not engine.core.running and not engine.core.waiting)


# ---- tenants ---------------------------------------------------------------------------------------------


def cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_multi_tenant_cache_leakage(server: Protected) -> None:
    """A key finds the prefixes that it has left, and never another's, whatever salt it sends."""
    long = [{"role": "user", "content": "a secret that somebody else should not be able to probe " * 3}]
    assert cached(chat(server, CLIENT, messages=long)) < 16
    assert cached(chat(server, CLIENT, messages=long)) > 32
    for salt in (f"{_owner(CLIENT)}/", _owner(CLIENT), "/", f"../{_owner(CLIENT)}/"):
        assert cached(chat(server, OTHER, messages=long, cache_salt=salt)) < 16
    assert cached(chat(server, OTHER, messages=long)) < 16
    assert cached(chat(server, CLIENT, messages=long, cache_salt="mine")) < 16
    assert cached(chat(server, CLIENT, messages=long, cache_salt="mine")) > 32


def _owner(key: str) -> str:
    found = Keys(Config(api_keys=[key])).find(key)
    assert found is not None
    return found.id


def test_multi_tenant_cache_leakage_by_embeddings(server: Protected, engine: llamina.Engine) -> None:
    """What is read, too, leaves and finds prefixes under the caller's salt."""
    asked: list[str] = []
    prepare = engine.core.prepare

    def watch(request: Any, *rest: Any) -> Any:
        asked.append(request.cache_salt)
        return prepare(request, *rest)

    engine.core.prepare = watch  # type: ignore[method-assign]
    try:
        for key in (CLIENT, OTHER):
            assert server.ask("/v1/embeddings", {"model": "stories", "input": "x"}, key).status_code == 200
    finally:
        engine.core.prepare = prepare  # type: ignore[method-assign]
    assert asked == [_owner(CLIENT), _owner(OTHER)]


def test_prefixes_are_shared_where_that_is_configured() -> None:
    with protected(api_keys=[CLIENT], share_prefixes=True) as shared:
        shared.ask("/v1/chat/completions", {"model": "scripted", "messages": HI}, CLIENT)
        assert "cache_salt" not in shared.scripted.asked[0].options  # type: ignore[attr-defined]


# ---- logs ------------------------------------------------------------------------------------------------


def test_no_secret_and_no_prompt_in_the_log(
    server: Protected, engine: llamina.Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a good request, nor of a bad one, nor of a mistake of ours that quotes it."""
    caplog.set_level(0)
    secret = [{"role": "user", "content": "TOPSECRET"}]
    assert chat(server, messages=secret).status_code == 200
    assert chat(server, messages=secret, temperature=-5).status_code == 400
    assert chat(server, "sk-TOPSECRET").status_code == 401
    monkeypatch.setattr("llamina.server.model.service.prepare", _break)
    assert chat(server, messages=secret).status_code == 500
    monkeypatch.setattr("llamina.server.openai.chat.check_n", _break)
    answer = chat(server, messages=secret)
    assert answer.status_code == 500 and "TOPSECRET" not in answer.text
    told = [record for record in caplog.records if record.name.startswith(("llamina", "uvicorn"))]
    text = "\n".join(f"{record.getMessage()} {record.exc_text or ''} {record.exc_info or ''}" for record in told)
    assert "KeyError in" in text and "TOPSECRET" not in text and CLIENT not in text


def _break(*args: Any) -> Any:
    raise KeyError(f"TOPSECRET {args}")
