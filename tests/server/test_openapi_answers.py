"""What is answered is as the OpenAPI document says. `serving` holds every answer of the server's tests to it."""

from typing import Any, TypedDict

import httpx
from contract import Contract
from live_server import Live
from protected_server import ADMIN, protected
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from llamina.server import openapi
from llamina.server.app import APIS
from llamina.server.http import Json, json
from llamina.server.openapi import document, statuses_of

PATHS: dict[str, Any] = document(route for api in APIS for route in api.routes)["paths"]
NO_JSON = {"/metrics", "/v1/files/{id}/content", "/v1/batch_jobs/{id}/output", "/api/copy", "/api/delete"}
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
TEXT = {"model": "stories", "prompt": "Once", "max_tokens": 3}
TOLD: list[tuple[str, Any]] = [  # a body that is given, or none
    ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", CHAT | {"stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", TEXT | {"logprobs": 2, "echo": True}),
    ("/v1/completions", TEXT | {"stream": True}),
    ("/v1/embeddings", {"model": "stories", "input": ["a", "b"]}),
    ("/v1/models", None),
    ("/v1/responses", {"model": "smollm2", "input": "hi", "max_output_tokens": 3}),
    ("/v1/responses", {"model": "smollm2", "input": "hi", "max_output_tokens": 3, "stream": True}),
    ("/v1/responses", None),
    ("/v1/files", None),
    ("/v1/batches", None),
    ("/v1/messages", CHAT),
    ("/v1/messages", CHAT | {"stream": True}),
    ("/v1/messages/count_tokens", {"model": "smollm2", "messages": CHAT["messages"]}),
    ("/v1/score", {"model": "stories", "text_1": "a", "text_2": "b"}),
    ("/api/chat", {"model": "smollm2", "messages": CHAT["messages"], "options": {"num_predict": 3}}),
    ("/api/chat", {"model": "smollm2", "messages": CHAT["messages"], "options": {"num_predict": 3}, "stream": False}),
    ("/api/generate", {"model": "stories", "prompt": "Once", "options": {"num_predict": 3}}),
    ("/api/generate", {"model": "stories", "prompt": "Once", "options": {"num_predict": 3}, "stream": False}),
    ("/api/tags", None),
    ("/api/ps", None),
    ("/api/show", {"model": "smollm2", "verbose": True}),
    ("/api/embed", {"model": "stories", "input": ["a", "b"]}),
    ("/completion", {"model": "stories", "prompt": "Once", "n_predict": 3, "n_probs": 2}),
    ("/completion", {"model": "stories", "prompt": "Once", "n_predict": 3, "stream": True}),
    ("/tokenize", {"model": "stories", "content": "Once", "with_pieces": True}),
    ("/tokenize", {"model": "stories", "prompt": "Once", "return_token_strs": True}),
    ("/detokenize", {"model": "stories", "tokens": [1, 2]}),
    ("/apply-template", {"model": "smollm2", "messages": CHAT["messages"]}),
    ("/props", None),
    ("/slots", None),
    ("/lora-adapters", None),
    ("/health", None),
]


def test_every_json_answer_has_a_schema() -> None:
    for path, methods in PATHS.items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                told = answer.get("content", {})
                assert bool(told) is (path not in NO_JSON or status == "default"), path
                assert all(media["schema"] for media in told.values()), path


def test_answers_are_as_they_are_told(live: Live) -> None:
    (contract,) = live.contracts
    before = contract.seen.copy()
    wanted = set()
    for path, body in TOLD:
        answer = httpx.request("GET" if body is None else "POST", live.url + path, json=body, timeout=120)
        kind = answer.headers["content-type"].partition(";")[0]
        wanted.add(("get" if body is None else "post", path, "200" if kind == "application/json" else kind))
        assert answer.status_code == 200, answer.text
    assert not contract.broken, contract.broken
    seen = contract.seen - before
    assert wanted <= set(seen)
    assert {kind for _, _, kind in wanted} == {"200", EVENTS, LINES}


def test_admin_answers_are_as_they_are_told() -> None:
    with protected(admin_key=ADMIN) as server:
        for path in ("models", "loras", "keys", "health", "stats", "requests"):
            assert server.manage(f"/admin/{path}", key=ADMIN).status_code == 200
        assert server.manage("/admin/keys", {"name": "a", "rates": {"requests": 3}}, key=ADMIN).status_code == 201
        assert server.manage("/admin/keys").status_code == 401
        _, admin = server.live.contracts
        assert not admin.broken and len(admin.seen) == 8


class Point(TypedDict):
    x: int


def test_an_answer_that_is_otherwise_is_noticed() -> None:
    def answering(value: Any, status: int = 200) -> list[str]:
        async def handler(request: Request) -> Json[Point]:
            return json(value, status)

        async def other(request: Request) -> Json[Point]:
            return Response("x", media_type="text/plain")  # type: ignore[return-value]

        handler.__module__ = other.__module__ = openapi.__name__  # whose name says where an operation belongs
        contract = Contract(Starlette(routes=[Route("/a", handler), Route("/b", other)]))
        TestClient(contract).get("/a" if value else "/b")
        return contract.broken

    assert answering({"x": 1}) == []
    assert len(answering({"x": "1"})) == len(answering({"y": 1})) == len(answering({"x": 1, "y": 1})) == 1
    assert len(answering({"x": 1}, 500)) == 1  # it is no error of the API
    assert "text/plain" in answering(None)[0]


def test_statuses_are_those_that_handlers_give() -> None:
    async def handler(request: Request) -> Json[Point]:
        return json({"x": 1}, 503 if request.url else 200)

    assert statuses_of(handler) == [200, 503]
    assert set(PATHS["/v1/batch_jobs"]["post"]["responses"]) == {"202", "default"}
    assert set(PATHS["/health"]["get"]["responses"]) == {"200", "503", "default"}
