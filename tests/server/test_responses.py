"""`/v1/responses` through the official client and litellm, against a live server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from live_server import Live, Scripted, done, said, wait_for
from openai.types.responses import ResponseItem
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import BaseModel
from responses_objects import (
    CAPITAL,
    GREEDY,
    QUESTION,
    created,
    names,
    official_client,
    streamed,
    strict,
    strict_response,
)

from llamina.server.model.frames import CallDelta, ErrorInfo, Logprob

USER = [{"role": "user", "content": QUESTION}]
MESSAGE = [
    "created",
    "in_progress",
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]


@pytest.fixture(scope="module")
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


@pytest.fixture
def script(live: Live) -> Iterator[Any]:
    """Serve a model that says prepared chunks."""

    def serve(*chunks: Any) -> Scripted:
        model = live.adopt("scripted", lambda: Scripted(list(chunks)))
        assert isinstance(model, Scripted)
        return model

    yield serve
    live.models.entries.pop("scripted", None)


def test_a_response_is_the_chat_s_answer(live: Live) -> None:
    found = created(
        live, model="smollm2", input=QUESTION, instructions="Be brief.", user="me", metadata={"a": "b"}, **GREEDY
    )
    messages = [{"role": "system", "content": "Be brief."}, *USER]
    expected = live.engines["smollm2"].chat(messages, temperature=0, max_tokens=12)
    assert found.output_text == expected.text and found.model == "smollm2"
    assert found.usage is not None and found.usage.input_tokens == expected.usage.prompt_tokens
    assert found.usage.output_tokens == expected.usage.completion_tokens
    assert found.status == ("completed" if expected.finish_reason == "stop" else "incomplete")
    assert (found.instructions, found.user, found.metadata) == ("Be brief.", "me", {"a": "b"})
    assert (found.temperature, found.top_p, found.tool_choice) == (0, 0.95, "auto")


def test_an_answer_that_is_cut(live: Live) -> None:
    found = created(live, model="smollm2", input=QUESTION, temperature=0, max_output_tokens=2)
    assert found.status == "incomplete" and found.incomplete_details is not None and found.completed_at is None
    assert found.incomplete_details.reason == "max_output_tokens" and found.output[0].status == "incomplete"  # type: ignore[union-attr]
    assert streamed(live, model="smollm2", input=QUESTION, temperature=0, max_output_tokens=2)[-1].type == (
        "response.incomplete"
    )


def test_streamed(live: Live) -> None:
    whole = created(live, model="smollm2", input=QUESTION, temperature=0, max_output_tokens=40)
    events = streamed(live, model="smollm2", input=QUESTION, temperature=0, max_output_tokens=40)
    assert names(events) == [*MESSAGE, "completed"] and whole.status == "completed"
    assert events[-1].response.output_text == whole.output_text
    assert sum(event.type == "response.output_text.delta" for event in events) > 5
    kept = official_client(live).responses.retrieve(events[-1].response.id)
    assert kept == events[-1].response


def test_the_client_s_own_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="smollm2", input=QUESTION, temperature=0, max_output_tokens=40) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text != ""


def test_parsed(client: openai.OpenAI, live: Live) -> None:
    class City(BaseModel):
        city: str

    answer = client.responses.parse(
        model="smollm2", input=QUESTION, text_format=City, temperature=0, max_output_tokens=60
    )
    assert answer.output_parsed is not None and isinstance(answer.output_parsed.city, str)
    format = {"type": "json_schema", "name": "city", "schema": {"enum": ["Tokyo", "Lima"]}, "strict": True}
    found = created(live, model="smollm2", input=QUESTION, text={"format": format}, **GREEDY)
    assert json.loads(found.output_text) in ("Tokyo", "Lima")
    found = created(live, model="smollm2", input=QUESTION, text={"format": {"type": "json_object"}}, **GREEDY)
    assert isinstance(json.loads(found.output_text), dict) or found.status == "incomplete"


def test_tool_round_trip(client: openai.OpenAI, live: Live) -> None:
    """function_call → function_call_output → answer, by chain and by sending everything again."""
    asked: dict[str, Any] = {"model": "smollm2", "tools": [CAPITAL], "temperature": 0, "max_output_tokens": 60}
    first = client.responses.create(**asked, input=QUESTION, tool_choice="required", parallel_tool_calls=False)
    strict_response(first.to_dict())
    call: Any = first.output[-1]
    assert call.type == "function_call" and json.loads(call.arguments)["country"] in ("Japan", "Peru")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Tokyo"}
    asked |= {"max_output_tokens": 12, "tool_choice": "none"}
    chained = client.responses.create(**asked, input=[output], previous_response_id=first.id)
    history: Any = [*USER, *(item.to_dict() for item in first.output), output]
    again = client.responses.create(**asked, input=history)
    assert chained.output_text == again.output_text != ""
    assert chained.usage is not None and again.usage is not None
    assert chained.usage.input_tokens == again.usage.input_tokens
    asked |= {"max_output_tokens": 60, "tool_choice": {"type": "function", "name": "capital"}}
    events = streamed(live, **asked, input=QUESTION)
    assert names(events)[-4:-1] == ["function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]


def test_reasoning_text_and_calls(live: Live, script: Any) -> None:
    calls = [
        CallDelta(0, "call_1", "capital"),
        CallDelta(0, arguments='{"country": '),
        CallDelta(0, arguments='"Peru"}'),
    ]
    model = script(
        said(reasoning="Let me"),
        said(reasoning=" think."),
        said(text="One "),
        said(text="moment."),
        *(said(calls=[call]) for call in calls),
        said(calls=[CallDelta(1, "call_2", "capital"), CallDelta(1, arguments='{"country": "Japan"}')]),
        done(),
    )
    body = {"model": "scripted", "input": QUESTION, "tools": [CAPITAL], "reasoning": {"effort": "high"}}
    events = streamed(live, **body)
    item = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    reasoning = [name.replace("output_text", "reasoning_text") for name in MESSAGE[2:]]
    assert names(events) == ["created", "in_progress", *reasoning, *MESSAGE[2:], *item, *item, "completed"]
    response = strict_response(created(live, **body).to_dict())
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    first: Any = response.output[0]
    assert first.content[0].text == "Let me think." and response.output_text == "One moment."
    assert [call.arguments for call in response.output if call.type == "function_call"] == [
        '{"country": "Peru"}',
        '{"country": "Japan"}',
    ]
    assert response.usage is not None and response.usage.output_tokens_details.reasoning_tokens == 2
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert model.asked[-1].options["max_tokens"] is None
    assert model.asked[-1].options["template_options"] == {"reasoning_effort": "high", "enable_thinking": True}
    # the whole turn goes back as one message
    outputs = [{"type": "function_call_output", "call_id": f"call_{i}", "output": "?"} for i in (1, 2)]
    created(live, model="scripted", input=outputs, previous_response_id=response.id)
    sent = model.asked[-1].messages
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1]["reasoning_content"] == "Let me think." and len(sent[1]["tool_calls"]) == 2


def test_a_call_that_turns_out_to_be_none(live: Live, script: Any) -> None:
    script(
        said(calls=[CallDelta(0, "call_1", "capital")]),
        said(calls=[CallDelta(0, arguments='{"coun')]),
        said(calls=[CallDelta(0, dropped=True)], text='{"name": "capital", {"coun'),
        said(text="try"),
        done(),
    )
    events = streamed(live, model="scripted", input=QUESTION, tools=[CAPITAL])
    assert [item.type for item in events[-1].response.output] == ["message"]
    assert events[-1].response.output_text == '{"name": "capital", {"country'
    with official_client(live).responses.stream(model="scripted", input=QUESTION, tools=[CAPITAL]) as stream:
        assert stream.get_final_response().output_text == '{"name": "capital", {"country'


def test_an_answer_of_nothing(live: Live, script: Any) -> None:
    script(done(tokens=0))
    events = streamed(live, model="scripted", input=QUESTION)
    assert [item.type for item in events[-1].response.output] == ["message"] and events[-1].response.output_text == ""


def test_logprobs(live: Live) -> None:
    body = {
        "model": "smollm2",
        "input": QUESTION,
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
        **GREEDY,
    }
    found: Any = created(live, **body).output[0]
    expected = live.engines["smollm2"].chat(USER, temperature=0, max_tokens=12, logprobs=2)
    assert expected.logprobs is not None
    scored = found.content[0].logprobs
    assert [entry.logprob for entry in scored] == [x.logprob for x in expected.logprobs if x is not None]
    assert all(len(entry.top_logprobs) == 2 for entry in scored)
    events = streamed(live, **body)
    told = [entry.logprob for e in events if e.type == "response.output_text.delta" for entry in e.logprobs]
    assert told == [entry.logprob for entry in scored]


def test_logprobs_are_of_the_text_alone(live: Live, script: Any) -> None:
    script(
        said(reasoning="hm", logprobs=[Logprob(1, b"hm", -1.0)]),
        said(text="a", logprobs=[Logprob(2, b"a", -2.0)]),
        said(logprobs=[Logprob(3, b"b", -3.0)]),
        said(text="bc", logprobs=[Logprob(4, b"c", -4.0)]),
        done(),
    )
    found: Any = created(live, model="scripted", input="x", include=["message.output_text.logprobs"]).output[1]
    assert [(x.token, x.logprob) for x in found.content[0].logprobs] == [("a", -2.0), ("b", -3.0), ("c", -4.0)]


def test_kept_and_deleted(client: openai.OpenAI, live: Live) -> None:
    found = client.responses.create(model="smollm2", input=[*USER, *USER, *USER], **GREEDY)  # type: ignore[list-item]
    assert client.responses.retrieve(found.id) == found
    newest = httpx.get(f"{live.url}/v1/responses?limit=1").json()
    assert newest["object"] == "list" and newest["data"][0]["id"] == newest["first_id"] == found.id
    page = httpx.get(f"{live.url}/v1/responses/{found.id}/input_items?limit=2&order=asc").json()
    assert len(strict(ResponseItemList, page).data) == 2 and page["has_more"]
    items = list(client.responses.input_items.list(found.id, limit=2, order="asc"))
    assert len({item.id for item in items}) == 3 and [item.id for item in items][:2] == [x["id"] for x in page["data"]]
    for item in items:
        strict(ResponseItem, item.to_dict())
    client.responses.delete(found.id)
    for missing in (client.responses.retrieve, client.responses.input_items.list, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            missing(found.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="smollm2", input="And?", previous_response_id=found.id)
    assert caught.value.code == "previous_response_not_found"


def test_store_false_keeps_nothing(client: openai.OpenAI, live: Live) -> None:
    for stream in (False, True):
        body: dict[str, Any] = {"model": "smollm2", "input": QUESTION, "store": False, **GREEDY}
        found = streamed(live, **body)[-1].response if stream else created(live, **body)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(found.id)


def test_chains(client: openai.OpenAI, script: Any) -> None:
    model = script(said(text="yes"), done())
    id = None
    for i in range(3):
        id = client.responses.create(model="scripted", input=f"q{i}", instructions=f"i{i}", previous_response_id=id).id
    sent = [(message["role"], message["content"]) for message in model.asked[-1].messages]
    turns = [("user", "q0"), ("assistant", "yes"), ("user", "q1"), ("assistant", "yes"), ("user", "q2")]
    assert sent == [("system", "i2"), *turns], "instructions are not carried over"


def test_item_references(client: openai.OpenAI, live: Live, script: Any) -> None:
    model = script(said(text="yes"), done())
    first = client.responses.create(model="scripted", input="q0")
    own = next(iter(client.responses.input_items.list(first.id))).id
    references: Any = [{"type": "item_reference", "id": id} for id in (own, first.output[0].id)]
    client.responses.create(model="scripted", input=[*references, {"role": "user", "content": "q1"}])
    sent = [message["content"] for message in model.asked[-1].messages]
    assert sent == ["q0", "yes", "q1"]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="scripted", input=[{"type": "item_reference", "id": own[:-1] + "f"}])
    with pytest.raises(openai.BadRequestError, match="twice"):
        client.responses.create(model="scripted", input=references, previous_response_id=first.id)


def test_tools_of_other_types_are_left_out(live: Live, script: Any) -> None:
    """As coding agents send them: they are named in a header, and do no harm."""
    model = script(said(text="yes"), done())
    others = [{"type": "web_search"}, {"type": "local_shell"}, {"type": "custom", "name": "apply_patch"}]
    history = [
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "x"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
        *USER,
    ]
    body = {
        "model": "scripted",
        "instructions": "You are an agent.",
        "input": history,
        "tools": [*others, CAPITAL | {"strict": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "session",
        "text": {"verbosity": "medium"},
        "client_metadata": {"agent": "x"},
    }
    answer = live.post("/v1/responses", body)
    assert answer.status_code == 200, answer.text
    warnings = answer.headers["x-llamina-warnings"]
    for name in ("web_search, local_shell, custom", "custom_tool_call", "encrypted"):
        assert name in warnings
    assert [tool.name for tool in strict_response(answer.content).tools] == ["capital"]  # type: ignore[union-attr]
    assert [tool["function"]["name"] for tool in model.asked[-1].options["tools"]] == ["capital"]
    assert model.asked[-1].messages[0] == {"role": "system", "content": "You are an agent.\n\nBe brief."}
    for choice in ("required", {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}):
        refused = live.post("/v1/responses", body | {"tools": others, "tool_choice": choice})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "tool_choice"


def test_leaving_a_stream_cancels_it(client: openai.OpenAI, live: Live) -> None:
    endless: Any = {"ignore_eos": True, "context_shift": True, "max_tokens": 100_000}
    stream = client.responses.create(model="smollm2", input=QUESTION, stream=True, extra_body=endless)
    assert next(iter(stream)).type == "response.created" and not live.idle("smollm2")
    stream.close()
    assert wait_for(lambda: live.idle("smollm2"))


def test_a_model_that_fails(live: Live, script: Any) -> None:
    """In the middle of a stream: the response failed, and is kept so. Without one, it is an HTTP error."""
    script(said(text="a"), done("error", error=ErrorInfo("ModelLost", "the worker died")))
    events = streamed(live, model="scripted", input="x")
    failed = events[-1].response
    assert (failed.status, failed.error.code, failed.output_text) == ("failed", "server_error", "a")
    assert official_client(live).responses.retrieve(failed.id).status == "failed"
    assert live.post("/v1/responses", {"model": "scripted", "input": "x"}).status_code == 503


def test_input_tokens(client: openai.OpenAI, live: Live) -> None:
    counted = client.responses.input_tokens.count(model="smollm2", input=QUESTION, tools=[CAPITAL])
    plain = client.responses.input_tokens.count(model="smollm2", input=QUESTION)
    answer = client.responses.create(model="smollm2", input=QUESTION, **GREEDY)
    assert answer.usage is not None and plain.input_tokens == answer.usage.input_tokens < counted.input_tokens
    assert plain.object == "response.input_tokens"


def test_litellm(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second client."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    asked: dict[str, Any] = {
        "model": "openai/smollm2",
        "api_base": f"{live.url}/v1",
        "api_key": "none",
        "input": QUESTION,
        "temperature": 0,
        "max_output_tokens": 40,
    }
    whole: Any = litellm.responses(**asked)
    assert whole.status == "completed" and whole.output[0].content[0].text
    streamed_events: list[Any] = list(litellm.responses(**asked, stream=True))
    text = "".join(event.delta for event in streamed_events if event.type == "response.output_text.delta")
    assert text == whole.output[0].content[0].text
    again: Any = litellm.responses(
        **asked | {"input": "And of Peru?"}, previous_response_id=streamed_events[-1].response.id
    )
    assert again.usage.input_tokens > whole.usage.input_tokens
