"""Batches through OpenAI's official client: every line is answered once, as the live endpoint would answer it."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa
from live_server import Live, Scripted, done, said, serving, wait_for
from openai.types import Batch
from openai.types.chat import ChatCompletion
from openai_objects import official_client, strict
from responses_objects import strict_response

from llamina.engine import Engine, load
from llamina.server.batch import run as run_batch
from llamina.server.batch.endpoints import ENDPOINTS, From
from llamina.server.batch.execute import LOSSES, PRIORITY
from llamina.server.config import Config, Limits
from llamina.server.model.frames import ErrorInfo, Failed, Generate, ToModel
from llamina.server.openai.responses.request import ResponseRequest

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPONSES = "/v1/responses"
ENDED = ("completed", "failed", "expired", "cancelled")
GREEDY: dict[str, Any] = {"model": "stories", "temperature": 0, "max_tokens": 8}
ENDLESS: dict[str, Any] = {
    "model": "stories", "prompt": "Once", "max_tokens": 1_000_000, "ignore_eos": True, "context_shift": True,
}  # fmt: skip


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


def line(custom_id: str, url: str, body: Any, **others: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **others}


def jsonl(lines: list[Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def create(client: openai.OpenAI, content: bytes, endpoint: str, window: str = "24h", **options: Any) -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    options = {"input_file_id": file.id, "endpoint": endpoint, "completion_window": window, **options}
    return strict(client.batches.create(**options))


def ended(client: openai.OpenAI, id: str) -> Batch:
    assert wait_for(lambda: client.batches.retrieve(id).status in ENDED, 60)
    return strict(client.batches.retrieve(id))


def lines_of(client: openai.OpenAI, file: str | None) -> dict[str, Any]:
    """The lines of a file by their custom_id, each of which is there once."""
    if file is None:
        return {}
    lines = [json.loads(text) for text in client.files.content(file).text.splitlines()]
    assert all(set(one) == {"id", "custom_id", "response", "error"} for one in lines)
    assert len({one["id"] for one in lines}) == len({one["custom_id"] for one in lines}) == len(lines)
    return {one["custom_id"]: one for one in lines}


def test_lines_are_answered_as_the_live_endpoint_does(client: openai.OpenAI, live: Live) -> None:
    prompts = [f"Once upon a time {i}" for i in range(40)]
    lines = [line(f"request {i}", COMPLETIONS, {"prompt": p, **GREEDY}) for i, p in enumerate(prompts)]
    made = create(client, jsonl(lines) + b"\n", COMPLETIONS, metadata={"for": "a test"})
    assert made.status == "validating" and made.metadata == {"for": "a test"}
    done = ended(client, made.id)
    assert done.status == "completed" and done.error_file_id is None and done.errors is None
    counts = done.request_counts
    assert counts is not None and (counts.total, counts.completed, counts.failed) == (40, 40, 0)
    assert done.completed_at and done.finalizing_at and done.in_progress_at and done.expires_at
    assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at
    assert done.output_file_id is not None and done.expires_at - done.created_at == 86400
    file = strict(client.files.retrieve(done.output_file_id))
    assert file.purpose == "batch_output" and file.bytes == len(client.files.content(file.id).read())
    found = lines_of(client, file.id)
    assert list(found) == [f"request {i}" for i in range(40)], "in the order of the input"
    for i, prompt in enumerate(prompts):
        response = found[f"request {i}"]["response"]
        assert response["status_code"] == 200 and response["request_id"]
        expected = live.engines["stories"].generate(prompt, temperature=0, max_tokens=8)
        assert response["body"]["choices"][0]["text"] == expected.text
    assert live.call(live.server.store.ids("batch_line", parent=made.id)) == [], "the file has them now"


def test_chats_and_embeddings(client: openai.OpenAI, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    hi = [{"role": "user", "content": "What is the capital of Japan?"}]
    asked = {"model": "smollm2", "messages": hi, "temperature": 0, "max_tokens": 8}
    chat = ended(client, create(client, jsonl([line("a", CHAT, asked)]), CHAT).id)
    answer = ChatCompletion.model_validate(lines_of(client, chat.output_file_id)["a"]["response"]["body"])
    assert answer.choices[0].message.content == live.engines["smollm2"].chat(hi, temperature=0, max_tokens=8).text
    embedding = {"model": "stories", "input": ["a llama", "an alpaca"]}
    engine, priorities = live.engines["stories"], list[int]()
    read = engine.read

    def spied(requests: list[Any]) -> Any:
        priorities.extend(request.priority for request in requests)
        return read(requests)

    monkeypatch.setattr(engine, "read", spied)
    batch = ended(client, create(client, jsonl([line("b", EMBEDDINGS, embedding)]), EMBEDDINGS).id)
    assert priorities == [PRIORITY] * 2
    found = lines_of(client, batch.output_file_id)["b"]["response"]["body"]
    live_answer = client.embeddings.create(**embedding, encoding_format="float")  # type: ignore[arg-type]
    assert [x["embedding"] for x in found["data"]] == [x.embedding for x in live_answer.data]


def test_responses_are_kept_for_the_batch_s_owner(client: openai.OpenAI, live: Live) -> None:
    first = client.responses.create(model="smollm2", input="Say A.", max_output_tokens=4, temperature=0)
    body = {"model": "smollm2", "input": "Say B.", "max_output_tokens": 4, "temperature": 0}
    bodies = {
        "alone": body,
        "follows": body | {"previous_response_id": first.id},
        "not kept": body | {"store": False},
        "background": body | {"background": True},
        "streamed": body | {"stream": True},
        "unknown": body | {"input": [{"role": "user", "content": "x", "colour": 1}]},
    }
    lines = [line(name, RESPONSES, one) for name, one in bodies.items()]
    batch = ended(client, create(client, jsonl(lines), RESPONSES).id)
    found, failed = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert list(found) == ["alone", "follows", "not kept"] and list(failed) == ["background", "streamed", "unknown"]
    answers = {name: strict_response(json.dumps(one["response"]["body"]).encode()) for name, one in found.items()}
    expected = client.responses.create(**body)
    assert answers["alone"].output_text == answers["not kept"].output_text == expected.output_text
    assert answers["follows"].previous_response_id == first.id
    assert client.responses.retrieve(answers["follows"].id).output_text == answers["follows"].output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answers["not kept"].id)
    for name in failed:
        assert failed[name]["response"]["body"]["error"]["param"] == {
            "streamed": "stream",
            "unknown": "input[0].colour",
        }.get(name, name)


def test_a_line_asked_again_is_the_response_that_is_kept(live: Live) -> None:
    """A server that is killed after a response is kept, and before its line is, makes no second one."""
    live.adopt("once", lambda: Scripted([said(text="yes"), done()]))
    request = ResponseRequest(model="once", input="x")
    one, other = From("key_1", "batch_1:000000001"), From("key_1", "batch_1:000000002")
    answer = ENDPOINTS[RESPONSES].answer
    made, again = (live.call(answer(live.server, request, one, priority=PRIORITY)) for _ in range(2))
    assert again == made and live.call(answer(live.server, request, other))["id"] != made["id"]
    model = live.models.entries["once"].model
    assert isinstance(model, Scripted) and len(model.asked) == 2
    first = model.asked[0]
    assert isinstance(first, Generate) and first.options["priority"] == PRIORITY
    assert live.call(live.server.store.get("response", made["id"], "key_1")) is not None
    assert live.call(live.server.store.get("response", made["id"], "")) is None
    live.models.entries.pop("once")


def test_lines_that_fail_are_in_the_error_file(client: openai.OpenAI) -> None:
    bad = {
        "unknown field": ({"prompt": "a", "temprature": 1}, 400, "temprature"),
        "out of range": ({"prompt": "a", "temperature": -1}, 400, "temperature"),
        "no such model": ({"prompt": "a", "model": "nobody"}, 404, "model"),
        "streamed": ({"prompt": "a", "stream": True}, 400, "stream"),
        "too long": ({"prompt": "a " * 5000}, 400, "prompt"),
    }
    lines = [line(name, COMPLETIONS, GREEDY | body) for name, (body, _, _) in bad.items()]
    lines.append(line("good", COMPLETIONS, {"prompt": "a", **GREEDY}))
    batch = ended(client, create(client, jsonl(lines), COMPLETIONS).id)
    counts = batch.request_counts
    assert counts is not None and (counts.total, counts.completed, counts.failed) == (6, 1, 5)
    assert batch.status == "completed" and list(lines_of(client, batch.output_file_id)) == ["good"]
    found = lines_of(client, batch.error_file_id)
    for name, (_, status, param) in bad.items():
        response = found[name]["response"]
        error = response["body"]["error"]
        assert (response["status_code"], error["param"]) == (status, param), error
        assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("content", "code", "at"),
    [
        (b"", "empty_file", None),
        (b"\n  \n", "empty_file", None),
        (jsonl([line("a", COMPLETIONS, {})]) + b"{nonsense\n", "invalid_json_line", 2),
        (b'\n"text"\n', "invalid_request", 2),
        (b"\xff\xfe\n", "invalid_json_line", 1),
        (b'{"body":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", "invalid_json_line", 1),
        (jsonl([line("a", COMPLETIONS, {}), line("b", CHAT, {})]), "invalid_url", 2),
        (jsonl([line("a", COMPLETIONS, [])]), "invalid_body", 1),
        (jsonl([line("a", COMPLETIONS, {}) | {"method": "GET"}]), "invalid_method", 1),
        (jsonl([{"custom_id": "a", "method": "POST", "url": COMPLETIONS}]), "invalid_request", 1),
        (jsonl([line("a", COMPLETIONS, {}, colour="red")]), "invalid_request", 1),
        (jsonl([line("", COMPLETIONS, {})]), "invalid_custom_id", 1),
        (jsonl([line("a", COMPLETIONS, {})] * 2), "duplicate_custom_id", 2),
    ],
)  # fmt: skip
def test_an_input_that_is_wrong(client: openai.OpenAI, content: bytes, code: str, at: int | None) -> None:
    batch = ended(client, create(client, content, COMPLETIONS).id)
    assert batch.status == "failed" and batch.failed_at and batch.errors is not None and batch.errors.data
    assert [(error.code, error.line) for error in batch.errors.data] == [(code, at)]
    assert batch.output_file_id is None and batch.error_file_id is None


def test_an_input_has_limits(tmp_path: Path) -> None:
    with serving({}, Config(data=str(tmp_path), limits=Limits(batch_lines=3, body_bytes=1000))) as live:
        client = official_client(live)
        four = jsonl([line(str(i), CHAT, {}) for i in range(4)])
        long = jsonl([line("a", CHAT, {"x": "x" * 2000}), line("b", CHAT, {})])
        for content, code in ((four, "too_many_tasks"), (long, "line_too_long")):
            errors = ended(client, create(client, content, CHAT).id).errors
            assert errors is not None and errors.data and [error.code for error in errors.data] == [code]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_file_id": "file-nobody"}, "input_file_id"),
        ({"endpoint": "/v1/images/edits"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_batch_that_is_refused(client: openai.OpenAI, live: Live, change: dict[str, Any], param: str) -> None:
    file = client.files.create(file=("in.jsonl", b""), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **change}
    answer = live.post("/v1/batches", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_batches_under_way_have_a_limit(tmp_path: Path) -> None:
    lines = jsonl([line("a", COMPLETIONS, {"prompt": "a"})])
    limits = Limits(batch_pending_bytes=len(lines) + 1)
    with serving({}, Config(data=str(tmp_path), limits=limits)) as live:
        client = official_client(live)
        waiting = live.adopt("silent", lambda: Scripted([]))
        batch = create(client, lines, COMPLETIONS)
        assert wait_for(lambda: waiting.active == 1)
        for ask in (
            lambda: create(client, lines, COMPLETIONS),
            lambda: client.post("/batch_jobs", cast_to=object, body={"input_jsonl": lines.decode()}),
        ):
            with pytest.raises(openai.RateLimitError, match="wait for one to end") as raised:
                ask()
            assert raised.value.response.headers["retry-after"]
        client.batches.cancel(batch.id)
        ended(client, batch.id)
        create(client, lines, COMPLETIONS)


def test_a_file_of_another_purpose_is_no_input(client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", b""), purpose="user_data")
    with pytest.raises(openai.BadRequestError, match="must be batch"):
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    for ask in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            ask("batch_nobody")


def test_a_batch_is_cancelled(client: openai.OpenAI, live: Live) -> None:
    """What is answered stays, what runs is stopped, and each of the others is told in the error file."""
    quick = [line(f"quick {i}", COMPLETIONS, {"prompt": "a", **GREEDY}) for i in range(3)]
    endless = [line(f"endless {i}", COMPLETIONS, ENDLESS) for i in range(20)]
    batch = create(client, jsonl(quick + endless), COMPLETIONS)
    wait_for(lambda: client.batches.retrieve(batch.id).request_counts.completed == 3)  # type: ignore[union-attr]
    with pytest.raises(openai.ConflictError, match="a batch reads"):
        client.files.delete(batch.input_file_id)
    assert strict(client.batches.cancel(batch.id)).status in ("cancelling", "cancelled")
    done = ended(client, batch.id)
    assert done.status == "cancelled" and done.cancelled_at and done.cancelling_at
    assert set(lines_of(client, done.output_file_id)) == {f"quick {i}" for i in range(3)}
    failed = lines_of(client, done.error_file_id)
    assert set(failed) == {f"endless {i}" for i in range(20)}
    assert all(one["response"] is None and one["error"]["code"] == "batch_cancelled" for one in failed.values())
    assert done.request_counts is not None and done.request_counts.failed == 20
    assert wait_for(lambda: live.idle("stories"))
    assert client.batches.cancel(batch.id).status == "cancelled", "it is what was asked for"
    client.files.delete(batch.input_file_id)


def test_a_batch_that_is_done_cannot_be_cancelled(client: openai.OpenAI) -> None:
    batch = ended(client, create(client, jsonl([line("a", COMPLETIONS, {"prompt": "a", **GREEDY})]), COMPLETIONS).id)
    with pytest.raises(openai.ConflictError, match="is completed"):
        client.batches.cancel(batch.id)


def test_a_batch_expires(client: openai.OpenAI, live: Live) -> None:
    expiry = {"anchor": "created_at", "seconds": 3600}
    lines = jsonl([line("quick", COMPLETIONS, {"prompt": "a", **GREEDY}), line("endless", COMPLETIONS, ENDLESS)])
    batch = ended(client, create(client, lines, COMPLETIONS, window="2s", output_expires_after=expiry).id)
    assert batch.status == "expired" and batch.expired_at and list(lines_of(client, batch.output_file_id)) == ["quick"]
    assert lines_of(client, batch.error_file_id)["endless"]["error"]["code"] == "batch_expired"
    file = client.files.retrieve(batch.output_file_id or "")
    assert file.expires_at is not None and 3598 <= file.expires_at - file.created_at <= 3600
    assert wait_for(lambda: live.idle("stories"))


def test_live_requests_go_first(client: openai.OpenAI, live: Live) -> None:
    """With every seat of the engine taken by a batch, a request of the live endpoint does not wait for one of them."""
    assert live.server.config.batch_concurrency >= 8, "as many as the engine has seats"
    batch = create(client, jsonl([line(str(i), COMPLETIONS, ENDLESS) for i in range(16)]), COMPLETIONS)
    core = live.engines["stories"].core
    assert wait_for(lambda: len(core.running) == 8)
    assert {sequence.request.priority for sequence in core.running} == {PRIORITY}
    answer = client.completions.create(prompt="Once upon a time", **GREEDY)
    assert answer.usage is not None and answer.usage.completion_tokens == 8
    client.batches.cancel(batch.id)
    ended(client, batch.id)


def test_batches_are_listed(client: openai.OpenAI) -> None:
    made = [create(client, b"", COMPLETIONS).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert [strict(batch).id for batch in page.data] == made[:0:-1] and page.has_more
    assert next(iter(client.batches.list(after=made[1]))).id == made[0]
    with pytest.raises(openai.BadRequestError):
        client.batches.list(limit=101)


def test_batch_jobs(client: openai.OpenAI, live: Live) -> None:
    """The input in the request, the output by one path: the same batches otherwise."""
    lines = jsonl([line(str(i), COMPLETIONS, {"prompt": "Once", **GREEDY}) for i in range(5)]).decode()
    made = live.post("/v1/batch_jobs", {"input_jsonl": lines, "endpoint": COMPLETIONS, "metadata": {"a": "b"}})
    assert made.status_code == 202
    job = made.json()
    assert job["object"] == "batch_job" and job["status"] == "validating" and job["metadata"] == {"a": "b"}
    assert client.files.content(job["input_file_id"]).text == lines
    batch = ended(client, job["id"])
    url = f"{live.url}/v1/batch_jobs"
    assert httpx.get(f"{url}/{batch.id}").json()["request_counts"] == {"total": 5, "completed": 5, "failed": 0}
    output = httpx.get(f"{url}/{batch.id}/output")
    assert output.text == client.files.content(batch.output_file_id or "").text
    assert output.headers["content-type"].startswith("application/jsonl")
    assert httpx.get(url, params={"limit": 1}).json()["data"][0]["id"] == batch.id
    again = live.post("/v1/batch_jobs", {"input_file_id": job["input_file_id"], "endpoint": COMPLETIONS}).json()
    assert ended(client, again["id"]).status == "completed"
    for body in ({}, {"input_jsonl": "", "input_file_id": "x"}):
        assert live.post("/v1/batch_jobs", body).status_code == 400
    endless = {"input_jsonl": json.dumps(line("a", COMPLETIONS, ENDLESS)), "endpoint": COMPLETIONS}
    id = live.post("/v1/batch_jobs", endless).json()["id"]
    assert httpx.get(f"{url}/{id}/output").status_code == 409
    assert live.post(f"/v1/batch_jobs/{id}/cancel", None).json()["status"] in ("cancelling", "cancelled")
    ended(client, id)
    assert httpx.get(f"{url}/{id}/output").content == b""


def test_an_interrupted_batch_goes_on(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """A server that is ended in the middle keeps what is answered; the next one does only the rest."""
    config = Config(data=str(tmp_path), batch_concurrency=2)

    def engine() -> Engine:
        return load(golden("stories260K.gguf"), max_sequences=4)

    lines = [line(str(i), COMPLETIONS, {"prompt": f"Once {i}", "max_tokens": 20}) for i in range(60)]
    with serving({"stories": engine()}, config) as live:
        client = official_client(live)
        id = create(client, jsonl(lines), COMPLETIONS).id
        wait_for(lambda: client.batches.retrieve(id).request_counts.completed >= 5)  # type: ignore[union-attr]
    second = engine()
    with serving({"stories": second}, config) as live:
        client = official_client(live)
        kept = live.call(live.server.store.each("batch_line", parent=id).__anext__())
        batch = ended(client, id)
        assert batch.request_counts is not None and batch.request_counts.completed == 60
        found = lines_of(client, batch.output_file_id)
        assert len(found) == 60 and found[kept.body["custom_id"]]["id"] == kept.body["id"], "the first answer stays"
        assert second.metrics.requests["length"] + second.metrics.requests["stop"] <= 55


def test_a_second_server_leaves_the_first_its_batches(tmp_path: Path) -> None:
    """Servers may share a data folder: a batch is taken over only from one that is gone."""
    config, lines = Config(data=str(tmp_path)), jsonl([line("a", COMPLETIONS, {"prompt": "a"})])
    with serving({}, config) as first:
        waiting = first.adopt("silent", lambda: Scripted([]))
        batch = create(official_client(first), lines, COMPLETIONS)
        assert wait_for(lambda: waiting.active == 1)
        with serving({}, config) as second:
            assert not second.server.jobs.running(batch.id)
            with pytest.raises(openai.ConflictError, match="another server"):
                official_client(second).batches.cancel(batch.id)
            assert official_client(second).batches.retrieve(batch.id).status == "in_progress"
    with serving({}, config) as third:
        third_client = official_client(third)
        assert ended(third_client, batch.id).status == "completed"
        assert official_client(third).batches.retrieve(batch.id).error_file_id, "the third has no such model"
        assert [path.name for path in (tmp_path / "servers").glob("server_*")] == [third.server.instance.id]


def test_finalizing_again_makes_the_same_files(client: openai.OpenAI, live: Live) -> None:
    """After a crash between the files and the last change of state."""
    batch = ended(client, create(client, jsonl([line("a", COMPLETIONS, {"prompt": "a", **GREEDY})]), COMPLETIONS).id)
    store, text = live.server.store, client.files.content(batch.output_file_id or "").text
    kept = live.call(store.get("batch", batch.id))
    fields = {"parent": batch.id, "status": "completed"}
    live.call(store.insert("batch_line", f"{batch.id}:000000001", json.loads(text), **fields))
    live.call(store.change("batch", batch.id, status="finalizing", body=kept.body))
    files = len(list(client.files.list()))
    live.call(run_batch(live.server, batch.id))
    again = client.batches.retrieve(batch.id)
    assert again.status == "completed" and again.output_file_id == batch.output_file_id
    assert client.files.content(batch.output_file_id or "").text == text and len(list(client.files.list())) == files


def test_a_lost_database_is_waited_for(client: openai.OpenAI, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost when a batch is looked up, or when it is changed."""
    batch = ended(client, create(client, jsonl([line("a", COMPLETIONS, {"prompt": "a", **GREEDY})]), COMPLETIONS).id)
    store, losses = live.server.store, {"get": 2, "change": 1}
    live.call(store.change("batch", batch.id, status="cancelling"))

    def failing(name: str) -> Callable[..., Any]:
        work = getattr(store, name)

        async def tried(*args: Any, **options: Any) -> Any:
            if losses[name]:
                losses[name] -= 1
                raise sa.exc.OperationalError("", {}, OSError("the database is lost"))
            return await work(*args, **options)

        return tried

    for name in losses:
        monkeypatch.setattr(store, name, failing(name))
    monkeypatch.setattr(import_module("llamina.server.batch.run"), "RETRY", 0)
    live.call(run_batch(live.server, batch.id))
    assert client.batches.retrieve(batch.id).status == "cancelled" and not any(losses.values())


class Failing(Scripted):
    """A model that fails so many times in a row before it answers."""

    def __init__(self, kind: str, times: int) -> None:
        super().__init__([done()])
        self._errors = [ErrorInfo(kind, "not now")] * times

    def send(self, frame: ToModel) -> None:
        if self._errors and isinstance(frame, Generate):
            self._loop.call_soon(self.receive, Failed(frame.id, self._errors.pop()))
        else:
            super().send(frame)


@pytest.mark.parametrize(
    ("kind", "times", "status"), [("QueueFull", 20, 200), ("ModelLost", LOSSES - 1, 200), ("ModelLost", LOSSES, 503)]
)
def test_a_line_is_asked_again(
    client: openai.OpenAI, live: Live, monkeypatch: pytest.MonkeyPatch, kind: str, times: int, status: int
) -> None:
    """For a full queue as often as it takes; a model that dies of a line each time is the line's failure."""
    monkeypatch.setattr("llamina.server.errors.RETRY_SECONDS", 0)
    live.adopt("failing", lambda: Failing(kind, times))
    batch = create(client, jsonl([line("a", COMPLETIONS, {"prompt": "a", "model": "failing"})]), COMPLETIONS)
    found = ended(client, batch.id)
    lines = lines_of(client, found.output_file_id if status == 200 else found.error_file_id)
    assert lines["a"]["response"]["status_code"] == status
    del live.models.entries["failing"]
