"""The Assistants API through OpenAI's official client, against a live server; every object is checked strictly."""

import threading
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from live_server import Live, Scripted, done, said, serving, wait_for
from openai_objects import strict

from llamina.server.caller import Caller
from llamina.server.config import Config
from llamina.server.model.frames import Call, CallDelta, ErrorInfo, Failed, Generate, Result
from llamina.server.openai import lists
from llamina.server.openai.assistants import objects, states

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # OpenAI calls this API deprecated

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "capital",
        "parameters": {"type": "object", "properties": {"country": {"enum": ["Japan"]}}, "required": ["country"]},
    },
}
CALL = [
    said(text="Let me look. "),
    said(calls=[CallDelta(0, "call_1", "capital")]),
    said(calls=[CallDelta(0, arguments='{"country": "Japan"}')]),
    done(),
]
ANSWER = [said(text="It is "), said(text="Tokyo."), done()]


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


class Counting(Scripted):
    """Says that a prompt has 10 tokens for each message."""

    def send(self, frame: Any) -> None:
        if isinstance(frame, Call) and "messages" not in frame.params:
            self._loop.call_soon(self.receive, Failed(frame.id, ErrorInfo("RequestError", "it only counts")))
        elif isinstance(frame, Call):
            self._loop.call_soon(self.receive, Result(frame.id, {"tokens": [1] * 10 * len(frame.params["messages"])}))
        else:
            super().send(frame)


class Acting(Counting):
    """Calls a function until it is told an output, then answers."""

    def send(self, frame: Any) -> None:
        if isinstance(frame, Generate):
            self.chunks = ANSWER if (frame.messages or [{}])[-1].get("role") == "tool" else CALL
        super().send(frame)


@pytest.fixture(scope="module")
def acting(live: Live) -> Acting:
    return live.adopt("acting", lambda: Acting([]))  # type: ignore[return-value]


@pytest.fixture
def endless(live: Live) -> Counting:
    """It goes on until it is cancelled."""
    return live.adopt("endless", lambda: Counting(ANSWER[:-1]))  # type: ignore[return-value]


def test_assistants(client: openai.OpenAI) -> None:
    api = client.beta.assistants
    made = strict(api.create(model="smollm2", name="Geo", instructions="Be brief.", tools=[TOOL], metadata={"a": "b"}))
    assert strict(api.retrieve(made.id)) == made and made.tools[0].type == "function"
    changed = strict(api.update(made.id, temperature=0.5, name="Atlas"))
    assert (changed.name, changed.temperature, changed.instructions) == ("Atlas", 0.5, "Be brief.")
    other = api.create(model="smollm2")
    assert [x.id for x in api.list(limit=1)][:2] == [other.id, made.id]
    assert strict(api.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError, match=made.id):
        api.retrieve(made.id)


def test_threads_and_messages(client: openai.OpenAI) -> None:
    threads = client.beta.threads
    thread = strict(threads.create(messages=[{"role": "user", "content": "One"}], metadata={"k": "v"}))
    assert strict(threads.retrieve(thread.id)) == thread
    assert strict(threads.update(thread.id, metadata={"k": "w"})).metadata == {"k": "w"}
    parts: Any = [{"type": "text", "text": "Two"}, {"type": "text", "text": " more"}]
    two = strict(threads.messages.create(thread.id, role="assistant", content=parts))
    assert [part.text.value for part in two.content if part.type == "text"] == ["Two", " more"]
    listed = [strict(message) for message in threads.messages.list(thread.id, limit=1, order="asc")]
    assert [message.role for message in listed] == ["user", "assistant"]
    assert [m.id for m in threads.messages.list(thread.id, before=listed[0].id).data] == [two.id]
    assert strict(threads.messages.retrieve(two.id, thread_id=thread.id)).content == two.content
    assert strict(threads.messages.update(two.id, thread_id=thread.id, metadata={"x": "y"})).metadata == {"x": "y"}
    assert strict(threads.messages.delete(two.id, thread_id=thread.id)).deleted
    assert len(threads.messages.list(thread.id).data) == 1
    assert strict(threads.create()).object == "thread"
    assert strict(threads.delete(thread.id)).deleted
    with pytest.raises(openai.NotFoundError):
        threads.messages.list(thread.id)


def test_run(client: openai.OpenAI, live: Live) -> None:
    """The answer is that of the engine to the thread, and the next run knows it."""
    runs, messages = client.beta.threads.runs, client.beta.threads.messages
    assistant = client.beta.assistants.create(model="smollm2", instructions="Be brief.", temperature=0)
    thread = client.beta.threads.create()
    extra: Any = [{"role": "user", "content": "What is the capital of Japan?"}]
    run = strict(
        runs.create_and_poll(
            thread_id=thread.id,
            assistant_id=assistant.id,
            additional_instructions="Always.",
            additional_messages=extra,
            max_completion_tokens=12,
            poll_interval_ms=20,
        )
    )
    asked = [{"role": "system", "content": "Be brief.\n\nAlways."}, *extra]
    expected = live.engines["smollm2"].chat(asked, temperature=0, max_tokens=12)
    answer = strict(messages.list(thread.id).data[0])
    assert answer.content[0].type == "text" and answer.content[0].text.value == expected.text
    assert answer.run_id == run.id and answer.assistant_id == assistant.id
    cut = expected.finish_reason == "length"
    assert run.status == ("incomplete" if cut else "completed") and run.instructions == "Be brief.\n\nAlways."
    assert run.usage is not None and run.usage.completion_tokens == expected.usage.completion_tokens
    steps = [strict(step) for step in runs.steps.list(thread_id=thread.id, run_id=run.id)]
    assert [step.step_details.type for step in steps] == ["message_creation"]
    assert strict(runs.steps.retrieve(steps[0].id, thread_id=thread.id, run_id=run.id)) == steps[0]
    assert strict(runs.retrieve(run.id, thread_id=thread.id)) == run
    assert strict(runs.update(run.id, thread_id=thread.id, metadata={"m": "n"})).metadata == {"m": "n"}
    assert [x.id for x in runs.list(thread.id)] == [run.id]
    assert [m.id for m in messages.list(thread.id, run_id=run.id)] == [answer.id]
    again = runs.create_and_poll(
        thread_id=thread.id,
        assistant_id="",
        model="smollm2",
        temperature=0,
        max_completion_tokens=4,
        poll_interval_ms=20,
    )
    asked = [*extra, {"role": "assistant", "content": expected.text}]
    assert (
        messages.list(thread.id, run_id=again.id).data[0].content[0].text.value  # type: ignore[union-attr]
        == live.engines["smollm2"].chat(asked, temperature=0, max_tokens=4).text
    )


def test_stream(client: openai.OpenAI) -> None:
    """The official events in their order; their deltas are the message."""
    thread: Any = {"messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
    assistant = client.beta.assistants.create(model="smollm2")
    names, text = [], ""
    stream = client.beta.threads.create_and_run(
        assistant_id=assistant.id, thread=thread, stream=True, temperature=0, max_completion_tokens=64
    )
    for event in stream:
        strict(event)
        names.append(event.event)
        if event.event == "thread.message.delta":
            part = (event.data.delta.content or [])[0]
            text += part.text.value or "" if part.type == "text" and part.text else ""
        if event.event == "thread.message.completed":
            assert [p.text.value for p in event.data.content if p.type == "text"] == [text]
    at = names.index("thread.message.delta")
    assert names[:at] == [
        "thread.created",
        "thread.run.created",
        "thread.run.queued",
        "thread.run.in_progress",
        "thread.run.step.created",
        "thread.run.step.in_progress",
        "thread.message.created",
        "thread.message.in_progress",
    ]
    assert names[-3:] == ["thread.message.completed", "thread.run.step.completed", "thread.run.completed"]
    assert set(names[at:-3]) == {"thread.message.delta"} and len(names[at:-3]) > 3


def test_stream_ends_with_done(live: Live) -> None:
    body = {"model": "smollm2", "stream": True, "max_tokens": 2}
    lines = live.post("/v1/threads/runs", body | {"thread": {"messages": [{"role": "user", "content": "Hi"}]}}).text
    assert lines.endswith("event: done\ndata: [DONE]\n\n") and "event: thread.run.incomplete\n" in lines
    assert '"incomplete_details":{"reason":"max_tokens"}' in lines


def test_tools(client: openai.OpenAI, acting: Acting) -> None:
    """A run waits for the outputs of its calls and goes on with them, whole and streamed."""
    runs = client.beta.threads.runs
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "Capital of Japan?"}])
    asked: dict[str, Any] = {"assistant_id": "", "model": "acting", "tools": [TOOL], "tool_choice": "required"}
    run = strict(runs.create_and_poll(thread_id=thread.id, poll_interval_ms=20, **asked))
    assert run.status == "requires_action" and run.required_action is not None and run.usage is None
    call = run.required_action.submit_tool_outputs.tool_calls[0]
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "capital", '{"country": "Japan"}')
    with pytest.raises(openai.BadRequestError, match="call_1"):
        runs.submit_tool_outputs(run.id, thread_id=thread.id, tool_outputs=[{"tool_call_id": "no", "output": ""}])
    with pytest.raises(openai.BadRequestError, match="active"):
        client.beta.threads.messages.create(thread.id, role="user", content="And?")
    with pytest.raises(openai.BadRequestError, match="active"):
        runs.create(thread.id, **asked)
    outputs: Any = [{"tool_call_id": "call_1", "output": "Tokyo"}]
    stream = runs.submit_tool_outputs(run.id, thread_id=thread.id, tool_outputs=outputs, stream=True)
    events = [strict(event) for event in stream]
    assert [event.event for event in events][:3] == [
        "thread.run.step.completed",
        "thread.run.queued",
        "thread.run.in_progress",
    ]
    last = events[-1]
    assert last.event == "thread.run.completed" and last.data.usage is not None and last.data.usage.total_tokens == 24
    steps = [strict(step) for step in runs.steps.list(thread_id=thread.id, run_id=run.id, order="asc")]
    assert [step.type for step in steps] == ["message_creation", "tool_calls", "message_creation"]
    assert {step.status for step in steps} == {"completed"}
    texts = [m.content[0].text.value for m in client.beta.threads.messages.list(thread.id, order="asc")]  # type: ignore[union-attr]
    assert texts == ["Capital of Japan?", "Let me look. ", "It is Tokyo."]
    told = acting.asked[-1].messages  # type: ignore[union-attr]
    assert [m["role"] for m in told or []] == ["user", "assistant", "tool"] and told is not None
    assert told[1]["content"] == "Let me look. " and told[1]["tool_calls"][0]["id"] == "call_1"
    # A later run knows what was called, and leaves out what it has no room for.
    client.beta.threads.messages.create(thread.id, role="user", content="Thanks")
    stream = runs.create(thread.id, **asked, stream=True)
    names = [strict(event).event for event in stream]
    assert names[-4:] == [
        "thread.run.step.created",
        "thread.run.step.in_progress",
        "thread.run.step.delta",
        "thread.run.requires_action",
    ]
    told = acting.asked[-1].messages  # type: ignore[union-attr]
    assert [m["role"] for m in told or []] == ["user", "assistant", "tool", "assistant", "user"]
    run = runs.list(thread.id).data[0]
    assert strict(runs.cancel(run.id, thread_id=thread.id)).status == "cancelled"
    for limit, roles in ({"max_prompt_tokens": 20}, ["user"]), ({"max_prompt_tokens": 5}, None):
        run = runs.create_and_poll(thread_id=thread.id, poll_interval_ms=20, **asked, **limit)
        if roles is None:
            assert run.status == "incomplete" and strict(run).incomplete_details is not None
            assert run.incomplete_details.reason == "max_prompt_tokens"  # type: ignore[union-attr]
        else:
            assert [m["role"] for m in acting.asked[-1].messages or []][:1] == roles  # type: ignore[union-attr]
            runs.cancel(run.id, thread_id=thread.id)
    runs.create_and_poll(
        thread_id=thread.id,
        truncation_strategy={"type": "last_messages", "last_messages": 1},
        poll_interval_ms=20,
        **asked,
    )
    assert len(acting.asked[-1].messages or []) == 1  # type: ignore[union-attr]


def test_expiry(client: openai.OpenAI, acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits too long for outputs is expired, and its thread is free."""
    monkeypatch.setattr(states, "PATIENCE", 0)
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "Capital?"}])
    runs = client.beta.threads.runs
    run = runs.create_and_poll(thread_id=thread.id, assistant_id="", model="acting", tools=[TOOL], poll_interval_ms=20)
    assert strict(run).status == "expired" and run.required_action is None
    steps = runs.steps.list(thread_id=thread.id, run_id=run.id, order="asc").data
    assert [strict(step).status for step in steps] == ["completed", "expired"]
    client.beta.threads.messages.create(thread.id, role="user", content="And?")


def test_cancel(client: openai.OpenAI, endless: Counting) -> None:
    """Cancelling stops the model before it is answered; what was said is kept, and listeners are told."""
    runs = client.beta.threads.runs
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "Go on"}])
    names: list[str] = []
    seen = threading.Event()

    def listen() -> None:
        for event in runs.create(thread.id, assistant_id="", model="endless", stream=True):
            names.append(strict(event).event)
            if names.count("thread.message.delta") == 2:
                seen.set()

    listening = threading.Thread(target=listen)
    listening.start()
    assert seen.wait(20)
    run = runs.list(thread.id).data[0]
    assert run.status == "in_progress"
    before = endless.cancelled
    assert strict(runs.cancel(run.id, thread_id=thread.id)).status == "cancelled"
    assert endless.cancelled == before + 1 and endless.active == 0
    listening.join(20)
    assert names[-4:] == [
        "thread.run.cancelling",
        "thread.message.incomplete",
        "thread.run.step.cancelled",
        "thread.run.cancelled",
    ]
    message = strict(client.beta.threads.messages.list(thread.id).data[0])
    assert message.status == "incomplete" and message.content[0].text.value == "It is Tokyo."  # type: ignore[union-attr]
    assert message.incomplete_details is not None and message.incomplete_details.reason == "run_cancelled"
    with pytest.raises(openai.BadRequestError, match="it is cancelled"):
        runs.cancel(run.id, thread_id=thread.id)


def test_a_thread_that_is_deleted_ends_its_run(client: openai.OpenAI, endless: Counting) -> None:
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "Go on"}])
    client.beta.threads.runs.create(thread.id, assistant_id="", model="endless")
    assert wait_for(lambda: endless.active == 1)
    client.beta.threads.delete(thread.id)
    assert endless.active == 0


def test_a_run_outlives_its_listener(client: openai.OpenAI, live: Live) -> None:
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "Tell me a story."}])
    stream = client.beta.threads.runs.create(
        thread.id, assistant_id="", model="smollm2", stream=True, max_completion_tokens=30
    )
    next(iter(stream))
    stream.close()
    run = client.beta.threads.runs.list(thread.id).data[0]
    done = client.beta.threads.runs.poll(run.id, thread_id=thread.id, poll_interval_ms=20)
    assert done.status in ("completed", "incomplete")


def test_failure(client: openai.OpenAI) -> None:
    """What the model refuses is the run's error."""
    thread = client.beta.threads.create(messages=[{"role": "user", "content": "word " * 3000}])
    run = strict(
        client.beta.threads.runs.create_and_poll(
            thread_id=thread.id, assistant_id="", model="smollm2", poll_interval_ms=20
        )
    )
    assert run.status == "failed" and run.last_error is not None and run.last_error.code == "invalid_prompt"
    assert "context" in run.last_error.message and run.failed_at is not None


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/assistants", {}, "model"),
        ("/v1/assistants", {"model": "smollm2", "temperature": -1}, "temperature"),
        ("/v1/assistants", {"model": "smollm2", "tools": [{"type": "file_search"}]}, "tools[0].type"),
        ("/v1/assistants", {"model": "smollm2", "response_format": "json"}, "response_format"),
        ("/v1/assistants", {"model": "smollm2", "metadata": {"k" * 65: ""}}, "metadata"),
        ("/v1/threads", {"messages": [{"role": "system", "content": ""}]}, "messages[0].role"),
        ("/v1/threads", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content[0]"),
        ("/v1/threads", {"messages": [{"role": "user", "content": "", "attachments": [{}]}]}, "attachments"),
        ("/v1/threads", {"tool_resources": {"file_search": {"vector_store_ids": ["v"]}}}, "tool_resources"),
        ("/v1/threads/runs", {"nonsense": 1}, "nonsense"),
        ("/v1/threads/runs", {"max_tokens": 0}, "max_completion_tokens"),
        ("/v1/threads/runs", {"truncation_strategy": {"type": "last_messages"}}, "truncation_strategy.last_messages"),
    ],
)
def test_bad_input_is_named(live: Live, path: str, body: dict[str, Any], param: str) -> None:
    answer = live.post(path, body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_others_do_not_see_it(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    assistant, thread = client.beta.assistants.create(model="smollm2"), client.beta.threads.create()
    for module in (objects, lists):
        monkeypatch.setattr(module, "caller", lambda request: Caller("key_other"))
    with pytest.raises(openai.NotFoundError):
        client.beta.threads.retrieve(thread.id)
    with pytest.raises(openai.NotFoundError):
        client.beta.threads.runs.create(thread.id, assistant_id="", model="smollm2")
    with pytest.raises(openai.NotFoundError):
        client.beta.assistants.delete(assistant.id)
    assert client.beta.assistants.list().data == []


def test_bad_queries(live: Live) -> None:
    for query, param in ("limit=0", "limit"), ("order=up", "order"), ("after=asst_no", "after"):
        assert _get(live, f"/v1/assistants?{query}")["error"]["param"] == param
    assert live.post("/v1/threads/runs", {"assistant_id": "asst_no"}).status_code == 404
    assert live.post("/v1/threads/runs", {"model": "no"}).json()["error"]["code"] == "model_not_found"


def test_restart(tmp_path: Path) -> None:
    """A run that is under way when the server ends goes on at the next start, and says nothing twice.

    Without its model it fails and says why.
    """
    config, messages = Config(data=str(tmp_path)), [{"role": "user", "content": "Hi"}]

    def half() -> Counting:
        return Counting([said(text="Half an ans")])

    with serving({}, config, {"m": half, "gone": half}) as server:
        asked = [{"model": name, "thread": {"messages": messages}} for name in ("m", "gone")]
        runs = [server.post("/v1/threads/runs", ask).json() for ask in asked]
        paths = [f"/v1/threads/{run['thread_id']}" for run in runs]
        for path in paths:
            assert wait_for(lambda path=path: len(_get(server, f"{path}/messages")["data"]) == 2)  # type: ignore[misc]
    with serving({}, config, {"m": lambda: Counting([said(text="Whole"), done()])}) as server:
        found = [f"{path}/runs/{run['id']}" for path, run in zip(paths, runs, strict=True)]
        assert wait_for(lambda: _get(server, found[0])["status"] == "completed")
        written = [message["content"][0]["text"]["value"] for message in _get(server, f"{paths[0]}/messages")["data"]]
        assert written == ["Whole", "Hi"] and len(_get(server, f"{found[0]}/steps")["data"]) == 1
        assert wait_for(lambda: _get(server, found[1])["status"] == "failed")
        assert "there is no model 'gone'" in _get(server, found[1])["last_error"]["message"]


def _get(live: Live, path: str) -> Any:
    return httpx.get(live.url + path).json()
