"""OpenAI's API through its official client, against a live server; every object is validated strictly."""

import base64
import json
import math
from typing import Any, Literal

import numpy as np
import openai
import pytest
from live_server import Live, wait_for
from openai.types import CompletionChoice
from openai_objects import official_client, strict, strict_part
from pydantic import BaseModel

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
HI: list[Any] = [{"role": "user", "content": "What is the capital of Japan?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "capital",
        "description": "The capital of a country",
        "parameters": {
            "type": "object",
            "properties": {"country": {"enum": ["Japan", "Peru"]}},
            "required": ["country"],
        },
    },
}


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


def test_models(client: openai.OpenAI) -> None:
    names = [strict(model).id for model in client.models.list()]
    assert "smollm2" in names and strict(client.models.retrieve("smollm2")).owned_by == "llamina"


def test_chat(client: openai.OpenAI, live: Live) -> None:
    answer = strict(client.chat.completions.create(model="smollm2", messages=HI, **GREEDY))
    expected = live.engines["smollm2"].chat(HI, **GREEDY)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].finish_reason == expected.finish_reason
    assert answer.usage is not None and answer.usage.completion_tokens == expected.usage.completion_tokens
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens


def test_chat_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="smollm2", messages=HI, **GREEDY)
    stream = client.chat.completions.create(
        model="smollm2", messages=HI, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = [strict(chunk) for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant" and len({(c.id, c.created, c.model) for c in chunks}) == 1
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason and chunks[-1].usage is not None
    assert whole.usage is not None and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len(chunks) > 6


def test_several_answers_and_logprobs(client: openai.OpenAI, live: Live) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "messages": HI, "n": 3, "seed": 7, "temperature": 3.0}
    asked |= {"max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    answer = strict(client.chat.completions.create(**asked))
    first = live.engines["smollm2"].chat(HI, seed=7, temperature=3.0, max_tokens=6, logprobs=2)
    assert len({choice.message.content for choice in answer.choices}) > 1
    scored = answer.choices[0].logprobs
    assert scored is not None and scored.content is not None and first.logprobs is not None
    assert [entry.logprob for entry in scored.content] == [x.logprob for x in first.logprobs if x]
    assert all(len(entry.top_logprobs) == 2 for entry in scored.content)
    assert b"".join(bytes(e.bytes or []) for e in scored.content).decode("utf-8", "ignore").startswith(first.text[:5])
    parts = [strict(chunk).choices[0] for chunk in client.chat.completions.create(**asked, stream=True)]
    for choice in answer.choices:
        own = [part for part in parts if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in own) == choice.message.content
        streamed = [entry for part in own if part.logprobs for entry in part.logprobs.content or []]
        assert choice.logprobs is not None and streamed == choice.logprobs.content


def test_tools(client: openai.OpenAI) -> None:
    """A call that is required, whole and streamed."""
    asked: dict[str, Any] = {"model": "smollm2", "messages": HI, "tools": [TOOL], "tool_choice": "required"}
    answer = strict(client.chat.completions.create(**asked, temperature=0, max_tokens=60))
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert call.function.name == "capital" and json.loads(call.function.arguments)["country"] in ("Japan", "Peru")
    assert call.type == "function" and call.id
    arguments, names = "", []
    for chunk in client.chat.completions.create(**asked, temperature=0, max_tokens=60, stream=True):
        for part in strict(chunk).choices[0].delta.tool_calls or []:
            assert part.function is not None and part.index == 0
            assert bool(part.function.name) == bool(part.id) == (part.type == "function"), "at its begin alone"
            names += [part.function.name] if part.function.name else []
            arguments += part.function.arguments or ""
    assert names == ["capital"] and arguments == call.function.arguments
    assert chunk.choices[0].finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": call.id, "content": "Tokyo"}
    history = [*HI, choice.message.model_dump(exclude_none=True), result]
    told = strict(client.chat.completions.create(model="smollm2", messages=history, tools=[TOOL], **GREEDY))
    assert told.choices[0].message.content and not told.choices[0].message.tool_calls


def test_structured_output(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Lima"]}}, "required": ["city"]}
    format: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    asked: dict[str, Any] = {"model": "smollm2", "messages": HI, "response_format": format, "temperature": 0}
    answer = strict(client.chat.completions.create(**asked))
    assert json.loads(answer.choices[0].message.content or "")["city"] in ("Tokyo", "Lima")
    chunks = [strict(chunk) for chunk in client.chat.completions.create(**asked, stream=True)]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == answer.choices[0].message.content


class City(BaseModel):
    city: Literal["Tokyo", "Lima"]


def test_structured_output_parsed(client: openai.OpenAI) -> None:
    """The client makes the schema, and an object of the answer."""
    answer = client.chat.completions.parse(model="smollm2", messages=HI, response_format=City, temperature=0)
    assert isinstance(answer.choices[0].message.parsed, City)


def test_completions(client: openai.OpenAI, live: Live) -> None:
    engine = live.engines["stories"]
    for prompt in ("Once upon a time", engine.encode("Once upon a time")):
        answer = strict(client.completions.create(model="stories", prompt=prompt, **GREEDY))  # type: ignore[arg-type]
        assert answer.choices[0].text == engine.generate("Once upon a time", **GREEDY).text
    several = strict(client.completions.create(model="stories", prompt=["Once", "Lily"], n=2, seed=3, max_tokens=5))
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[2].text == engine.generate("Lily", seed=3, max_tokens=5).text
    asked: dict[str, Any] = {"model": "stories", "prompt": "Once upon a time", "logprobs": 2, **GREEDY}
    scored = strict(client.completions.create(**asked)).choices[0]
    stream = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    parts = [strict_part(part) for part in stream]
    assert parts.pop().usage == answer.usage and parts[-1].choices[0].finish_reason == scored.finish_reason
    assert "".join(part.choices[0].text for part in parts) == answer.choices[0].text == scored.text
    logprobs = [part.choices[0].logprobs for part in parts]
    assert scored.logprobs is not None and scored.logprobs.top_logprobs is not None
    assert [x for part in logprobs if part for x in part.token_logprobs or ()] == scored.logprobs.token_logprobs
    assert all(len(top) == 2 for top in scored.logprobs.top_logprobs)


def test_echo_with_logprobs(client: openai.OpenAI, live: Live) -> None:
    """As lm-eval asks for log-likelihoods: nothing is generated, and the prompt's tokens are scored."""
    answer = client.completions.create(
        model="stories", prompt="Once upon a time", echo=True, logprobs=1, max_tokens=0, temperature=0
    )
    choice = answer.choices[0]
    assert choice.text == "Once upon a time" and choice.logprobs is not None
    logprobs = choice.logprobs.token_logprobs
    assert logprobs is not None and logprobs[0] is None
    raw = choice.model_dump()  # the first token has no log-probability: null, for which the client's model has no place
    for name, value in (("token_logprobs", 0.0), ("top_logprobs", {})):
        assert raw["logprobs"][name][0] is None
        raw["logprobs"][name][0] = value
    strict(CompletionChoice.model_validate(raw))
    expected = live.engines["stories"].token_scores("Once upon a time")
    assert len(logprobs) == len(expected.logprobs) + 1
    assert math.isclose(sum(logprobs[1:]), expected.total, rel_tol=1e-6)


def test_embeddings(client: openai.OpenAI, live: Live) -> None:
    texts = ["a llama", "an alpaca"]
    expected = live.engines["stories"].embed(texts)
    for format in ("float", "base64"):
        found = client.embeddings.create(model="stories", input=texts, encoding_format=format)  # type: ignore[arg-type]
        for item in found.data if format == "base64" else ():
            coded: Any = item.embedding
            item.embedding = np.frombuffer(base64.b64decode(coded, validate=True), "<f4").tolist()
        vectors = [item.embedding for item in strict(found).data]
        assert np.allclose(np.array(vectors), expected, atol=1e-6)
    cut = strict(client.embeddings.create(model="stories", input="a llama", dimensions=8)).data[0].embedding
    assert len(cut) == 8 and math.isclose(sum(x * x for x in cut), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": HI, "temprature": 1}, 400, "temprature"),
        ({"messages": HI, "temperature": -1}, 400, "temperature"),
        ({"messages": HI, "max_tokens": 0}, 400, "max_tokens"),
        ({"messages": HI, "n": 100}, 400, "n"),
        ({"messages": HI, "top_logprobs": 99, "logprobs": True}, 400, "top_logprobs"),
        ({"messages": HI, "stop": ["x"] * 99}, 400, "stop"),
        ({"messages": HI, "response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
        ({"messages": HI, "tools": [{"name": "a", "parameters": {"properties": 3}}]}, 400, "tools"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
        ({"messages": HI, "grammar": "root ::= ("}, 400, "grammar"),
        ({"messages": HI, "lora": "nobody"}, 400, "adapters"),
        ({"messages": HI, "model": "nobody"}, 404, "model"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_openais_shape(live: Live, body: dict[str, Any], status: int, param: str) -> None:
    answer = live.post("/v1/chat/completions", {"model": "smollm2", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param) and set(error) == {
        "message",
        "type",
        "param",
        "code",
    }


def test_what_is_no_json(live: Live) -> None:
    import httpx

    answer = httpx.post(f"{live.url}/v1/chat/completions", content=b"{")
    assert answer.status_code == 400 and "JSON" in answer.json()["error"]["message"]
    assert httpx.get(f"{live.url}/v1/nothing").json()["error"]["type"] == "not_found_error"
    large = httpx.post(f"{live.url}/v1/chat/completions", content=b" " * ((10 << 20) + 1))
    assert large.status_code == 413


def test_a_client_that_leaves(client: openai.OpenAI, live: Live) -> None:
    """Nothing more is computed for it."""
    stream = client.completions.create(
        model="stories",
        prompt="Once",
        stream=True,
        max_tokens=100_000,
        extra_body={"ignore_eos": True, "context_shift": True},
    )
    next(iter(stream))
    stream.close()
    assert wait_for(lambda: live.idle("stories"))
