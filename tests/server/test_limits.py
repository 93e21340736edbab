"""Every limit of `config.Limits`, through every API that has what it limits."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from protected_server import Protected, protected

from llamina.server.config import Limits

SMALL = Limits(
    body_bytes=20_000,
    messages=2,
    tools=1,
    depth=20,
    schema_bytes=500,
    grammar_bytes=400,
    regex_bytes=100,
    stop_strings=2,
    stop_length=5,
    logit_bias=2,
    adapters=1,
    answers=2,
    top_logprobs=3,
    inputs=2,
)
HI = [{"role": "user", "content": "hi"}]
OPENAI = {"model": "scripted", "messages": HI}
TEXT = {"model": "scripted", "prompt": "hi"}
ANTHROPIC = {"model": "scripted", "messages": HI, "max_tokens": 5}
OLLAMA = {"model": "scripted", "messages": HI, "stream": False}
VECTORS = {"model": "scripted", "input": ["a", "b", "c"]}
LARGE = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(50)}}


def tool(schema: Any, n: int = 1) -> list[Any]:
    return [{"type": "function", "function": {"name": f"t{i}", "parameters": schema}} for i in range(n)]


def nested(levels: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(levels):
        value = {"items": value}
    return value


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("messages", OPENAI, {"messages": HI * 3}),
    ("messages", ANTHROPIC, {"messages": HI * 3}),
    ("messages", OLLAMA, {"messages": HI * 3}),
    ("tools", OPENAI, {"tools": tool({}, 2)}),
    ("tools", ANTHROPIC, {"tools": [{"name": f"t{i}", "input_schema": {}} for i in range(2)]}),
    ("tools", OLLAMA, {"tools": tool({}, 2)}),
    ("schema_bytes", OPENAI, {"tools": tool(LARGE)}),
    ("schema_bytes", ANTHROPIC, {"tools": [{"name": "t", "input_schema": LARGE}]}),
    ("schema_bytes", OLLAMA, {"tools": tool(LARGE)}),
    ("schema_bytes", OPENAI, {"response_format": {"type": "json_schema", "json_schema": {"schema": LARGE}}}),
    ("schema_bytes", OPENAI, {"response_format": {"type": "json_object", "schema": LARGE}}),
    ("schema_bytes", TEXT, {"json_schema": LARGE}),
    ("schema_bytes", TEXT, {"guided_json": LARGE}),
    ("schema_bytes", ANTHROPIC, {"output_format": {"type": "json_schema", "schema": LARGE}}),
    ("schema_bytes", OLLAMA, {"format": LARGE}),
    ("depth", OPENAI, {"tools": tool(nested(30))}),
    ("depth", OPENAI, {"messages": [HI[0] | {"extra": nested(30)}]}),
    ("depth", OPENAI, {"chat_template_kwargs": nested(30)}),
    ("depth", TEXT, {"json_schema": nested(30)}),
    ("depth", ANTHROPIC, {"tools": [{"name": "t", "input_schema": nested(30)}]}),
    ("depth", OLLAMA, {"format": nested(30)}),
    ("grammar_bytes", OPENAI, {"grammar": "root ::= " + '"a" ' * 200}),
    ("grammar_bytes", TEXT, {"guided_grammar": "root ::= " + '"a" ' * 200}),
    ("grammar_bytes", TEXT, {"lark": "start: " + '"ä" ' * 200}),
    ("grammar_bytes", TEXT, {"choices": ["a" * 300, "b" * 300]}),
    ("regex_bytes", TEXT, {"regex": "a" * 101}),
    ("regex_bytes", OPENAI, {"guided_regex": "a" * 101}),
    ("stop_strings", OPENAI, {"stop": ["a", "b", "c"]}),
    ("stop_strings", TEXT, {"dry_sequence_breakers": ["a", "b", "c"]}),
    ("stop_strings", ANTHROPIC, {"stop_sequences": ["a", "b", "c"]}),
    ("stop_strings", OLLAMA, {"options": {"stop": ["a", "b", "c"]}}),
    ("stop_length", OPENAI, {"stop": "abcdef"}),
    ("stop_length", ANTHROPIC, {"stop_sequences": ["abcdef"]}),
    ("stop_length", OLLAMA, {"options": {"stop": ["abcdef"]}}),
    ("logit_bias", OPENAI, {"logit_bias": {"1": 1, "2": 1, "3": 1}}),
    ("logit_bias", TEXT, {"banned_tokens": [1, 2, 3]}),
    ("logit_bias", TEXT, {"bad_words": ["a", "b", "c"]}),
    ("adapters", OPENAI, {"lora": [{"name": "a"}, {"name": "b"}]}),
    ("answers", OPENAI, {"n": 3}),
    ("answers", OPENAI, {"n": 0}),
    ("answers", TEXT, {"n": 3}),
    ("top_logprobs", OPENAI, {"logprobs": True, "top_logprobs": 4}),
    ("top_logprobs", TEXT, {"logprobs": 4}),
    ("top_logprobs", OLLAMA, {"logprobs": True, "top_logprobs": 4}),
    ("inputs", TEXT, {"prompt": ["a", "b", "c"]}),
    ("inputs", VECTORS, {}),
    ("inputs", VECTORS, {"truncate": True}),
]
PATHS = {id(OPENAI): "/v1/chat/completions", id(TEXT): "/v1/completions", id(ANTHROPIC): "/v1/messages"}
PATHS |= {id(OLLAMA): "/api/chat", id(VECTORS): "/v1/embeddings"}


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    with protected(limits=SMALL) as found:
        yield found


@pytest.mark.parametrize(("limit", "body", "change"), CASES)
def test_over_a_limit_it_is_400(limit: str, body: Any, change: Any, server: Protected) -> None:
    path = "/api/embed" if "truncate" in change else PATHS[id(body)]
    asked = len(server.scripted.asked)  # type: ignore[attr-defined]
    answer = server.ask(path, body | change)
    assert answer.status_code == 400, answer.text
    value = getattr(SMALL, limit)
    assert str(value) in answer.text
    assert len(server.scripted.asked) == asked, "nothing of it reaches the model"  # type: ignore[attr-defined]


def test_a_thread_has_a_most_of_messages(server: Protected) -> None:
    """However they come: a run reads them all."""
    thread = server.ask("/v1/threads", {"messages": HI}).json()["id"]
    assistant = server.ask("/v1/assistants", {"model": "scripted"}).json()["id"]
    run = {"assistant_id": assistant, "additional_messages": HI * 2}
    for path, body in (
        (f"/v1/threads/{thread}/runs", run),
        ("/v1/threads/runs", run | {"thread": {"messages": HI}}),
    ):
        answer = server.ask(path, body)
        assert answer.status_code == 400 and "2 are allowed" in answer.text, answer.text
    codes = [server.ask(f"/v1/threads/{thread}/messages", HI[0]).status_code for _ in range(2)]
    assert codes == [200, 400]


@pytest.mark.parametrize("content", [b'{"metadata": {"a": "\xff"}}', b'{"messages":' + b"[" * 5000, b"["])
def test_a_thread_of_what_is_none_is_400(content: bytes, server: Protected) -> None:
    assert server.ask("/v1/threads", method="POST", content=content).status_code == 400


OWN = {"file_bytes", "batch_lines", "batch_pending_bytes"}  # of files and batches, which have tests of their own


def test_every_limit_is_here() -> None:
    names = {field.name for field in msgspec.structs.fields(Limits)} - {"body_bytes", *OWN}
    assert names == {limit for limit, _, _ in CASES}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/api/chat", "/api/create"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_413(path: str, chunked: bool, server: Protected) -> None:
    parts = (b"x" * 10_000 for _ in range(3))
    answer = server.ask(path, method="POST", content=parts if chunked else b"x" * 30_000)
    assert answer.status_code == 413 and "20000" in answer.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800", "messages": []}',
        b"[" * 10_000,
        b'{"messages":' * 1500,
        b'{"messages": [], "messages": []}' * 2,
        b"\x00" * 100,
        b'{"a": 1e99999}',
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/api/chat"]
)
def test_bodies_that_are_none(path: str, content: bytes, server: Protected) -> None:
    answer = server.ask(path, method="POST", content=content)
    assert 400 <= answer.status_code < 500, answer.text
