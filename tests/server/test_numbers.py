"""Every number of every request at its worst: a 4xx or an answer, never a 5xx."""

import asyncio
import json
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from live_server import Live, serving
from protected_server import templated

import llamina
from llamina.server.anthropic.request import CountRequest, MessagesRequest
from llamina.server.model import ModelError, WorkerModel
from llamina.server.model.frames import Generate
from llamina.server.ollama import chat as ollama_chat
from llamina.server.ollama.embed import EmbedRequest
from llamina.server.ollama.generate import GenerateRequest
from llamina.server.ollama.options import Options
from llamina.server.openai.chat import ChatRequest
from llamina.server.openai.completions import CompletionRequest
from llamina.server.openai.embeddings import EmbeddingsRequest

NUMBERS = ("-1", "9223372036854775808", "-1" + "0" * 30, "NaN", "1e400", "-1e308", "1e308")
HI = [{"role": "user", "content": "hi"}]
X = "@@number@@"
SMALL = {"model": "stories", "max_tokens": 2}
BODIES: list[tuple[str, type[msgspec.Struct], dict[str, Any]]] = [
    ("/v1/chat/completions", ChatRequest, {**SMALL, "messages": HI}),
    ("/v1/completions", CompletionRequest, {**SMALL, "prompt": "Once"}),
    ("/v1/embeddings", EmbeddingsRequest, {"model": "stories", "input": "Once"}),
    ("/v1/messages", MessagesRequest, {**SMALL, "messages": HI}),
    ("/v1/messages/count_tokens", CountRequest, {"model": "stories", "messages": HI}),
    ("/api/chat", ollama_chat.ChatRequest, {"model": "stories", "messages": HI, "options": {"num_predict": 2}}),
    ("/api/generate", GenerateRequest, {"model": "stories", "prompt": "Once", "options": {"num_predict": 2}}),
    ("/api/embed", EmbedRequest, {"model": "stories", "input": "Once"}),
]
INNER: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {**SMALL, "prompt": [X]}),
    ("/v1/completions", {**SMALL, "prompt": [[1, X]]}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "logit_bias": {"5": X}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "logit_bias": {X: 1}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "banned_tokens": [X]}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "lora": [{"name": "x", "scale": X}]}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "json_schema": {"type": "integer", "minimum": X}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "json_schema": {"type": "string", "maxLength": X}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "json_schema": {"type": "array", "minItems": X}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "json_schema": {"type": "number", "multipleOf": X}}),
    ("/v1/completions", {**SMALL, "prompt": "Once", "json_schema": {"const": X}}),
    ("/v1/chat/completions", {**SMALL, "messages": [{"role": "user", "content": "hi", "extra": X}]}),
    ("/v1/chat/completions", {**SMALL, "messages": HI, "chat_template_kwargs": {"x": X}}),
    ("/v1/embeddings", {"model": "stories", "input": [X]}),
    ("/v1/messages", {**SMALL, "messages": HI, "thinking": {"type": "enabled", "budget_tokens": X}}),
    ("/api/generate", {"model": "stories", "prompt": "Once", "context": [X], "options": {"num_predict": 2}}),
]


@pytest.fixture(scope="module")
def server(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = templated(golden("stories260K.gguf"), tmp_path_factory.mktemp("numbers") / "stories.gguf")
    with serving({"stories": llamina.load(path, threads=1, context=64)}) as found:
        yield found


@pytest.mark.parametrize(("path", "struct", "body"), BODIES)
def test_the_bodies_are_answered(path: str, struct: Any, body: Any, server: Live) -> None:
    assert server.post(path, body).status_code == 200


def numeric(kind: Any) -> bool:
    """Whether a field may be a number."""
    if typing.get_origin(kind) is typing.Annotated:
        return numeric(typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(numeric(part) for part in typing.get_args(kind))
    return kind in (int, float)


def fields(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct) if numeric(field.type)]


def cases() -> list[tuple[str, dict[str, Any]]]:
    found = [(path, body | {name: X}) for path, struct, body in BODIES for name in fields(struct)]
    for path in ("/api/chat", "/api/generate"):
        body = next(body for known, _, body in BODIES if known == path)
        found += [(path, body | {"options": {"num_predict": 2, name: X}}) for name in fields(Options)]
    return found + INNER


def test_there_are_many() -> None:
    assert len(cases()) > 120 and "temperature" in fields(ChatRequest) and "budget" not in fields(MessagesRequest)


@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_is_a_mistake_of_ours(number: str, server: Live) -> None:
    mistakes = []
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for path, body in cases():
            text = json.dumps(body)
            text = text.replace(f'"{X}": 1', f'"{number}": 1').replace(f'"{X}"', number)
            status = client.post(path, content=text, headers={"Content-Type": "application/json"}).status_code
            if status >= 500:
                mistakes.append((path, text, status))
    assert mistakes == []
    assert server.idle("stories")


def test_numbers_that_no_frame_holds_are_refused() -> None:
    """JSON's numbers have any size; those of the frames to a worker have 64 bits."""

    async def scene() -> None:
        model = WorkerModel("nowhere.gguf", {})
        model._transport = object()  # type: ignore[assignment]
        for value in (1 << 70, -(1 << 70)):
            with pytest.raises(ModelError) as caught:
                model.send(Generate(1, prompt="x", options={"json_schema": {"minimum": value}}))
            assert caught.value.info.kind == "RequestError"

    asyncio.run(scene())
