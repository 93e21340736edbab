"""The OpenAPI document and its page; Schemathesis sends what the document allows, and what it does not.

`LLAMINA_FUZZ=5000 pytest tests/server/test_openapi.py` does at length what the suite does in seconds.
"""

import os
import random
import re
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from live_server import Live, serving
from starlette.routing import Route

from damage import mutate
from llamina.engine import load
from llamina.server.app import APIS
from llamina.server.errors import AnthropicError, LlamaError, OllamaError, OpenAIError
from llamina.server.openapi import body_of, document, error_of, queries_of
from skips import import_peer

CASES = int(os.environ.get("LLAMINA_FUZZ", "200"))
ROUTES = [route for api in APIS for route in api.routes if isinstance(route, Route) and route.include_in_schema]


def test_the_document_is_derived_from_the_routes(live: Live) -> None:
    found = httpx.get(f"{live.url}/openapi.json").json()
    assert found == document(ROUTES)
    told = {(path, method) for path, methods in found["paths"].items() for method in methods}
    assert told == {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    assert all(operation["summary"] for methods in found["paths"].values() for operation in methods.values())


def test_bodies_are_those_that_handlers_read() -> None:
    """By name, so that a handler that reads its body in another way is noticed."""
    names = {route.path: getattr(body_of(route.endpoint), "__name__", None) for route in ROUTES}
    assert names["/v1/chat/completions"] == "ChatRequest" and names["/v1/messages"] == "MessagesRequest"
    assert names["/api/show"] == "ShowRequest" and names["/v1/models"] is None
    found = document(ROUTES)
    schema = found["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": found["components"]}
    jsonschema.validate({"messages": [{"role": "user", "content": "hi"}], "top_k": 3}, whole)
    for wrong in ({"messages": "hi"}, {"messages": [], "nonsense": 1}, {}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, whole)


def test_queries_are_those_that_handlers_ask_for() -> None:
    async def handler(request: Any) -> Any:
        if "all" in request.query_params:
            return request.query_params.get("limit", "20"), request.query_params["after"], request.headers.get("not")

    assert sorted(queries_of(handler)) == ["after", "all", "limit"]


def test_errors_have_the_shape_that_is_told(live: Live) -> None:
    for path, keys in (
        ("/v1/x", {"message", "type", "param", "code"}),
        ("/completion", {"message", "type", "code", "param"}),
    ):
        error = httpx.put(live.url + path).json()["error"]
        assert error.keys() == keys, path
    assert {error_of(route.path) for route in ROUTES} == {OpenAIError, AnthropicError, OllamaError, LlamaError}


def test_the_page_needs_nobody_else(live: Live) -> None:
    page = httpx.get(f"{live.url}/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "http" not in page.text and "style=" not in page.text and "<style" not in page.text
    for file in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        part = httpx.get(live.url + file)
        assert part.status_code == 200 and "http://" not in part.text and "https://" not in part.text
    assert httpx.get(f"{live.url}/docs/..%2fdocs.py").status_code == 404


DICE = random.Random(1)
ESSENTIAL = {"messages", "prompt", "input", "max_tokens", "from"}
SLOW = {"/api/pull"}  # it goes to the network


def test_no_input_is_a_5xx(golden: Any, tmp_path: Path) -> None:
    """Valid and invalid requests to every operation, by the document; half of them to a model that there is.

    Of an operation without a body there may be fewer different ones than its share: those with bodies make up for it.
    """
    schemathesis = import_peer("schemathesis")
    modes = schemathesis.GenerationMode
    engine = load(golden("stories260K.gguf"), context=256, max_sequences=4)
    statuses: Counter[int] = Counter()
    bad: list[str] = []
    with serving({"stories": engine}) as server, httpx.Client(base_url=server.url, timeout=300) as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        operations = [result.ok() for result in schema.get_all_operations()]
        operations = [operation for operation in operations if operation.path not in SLOW]
        for turn in count(1):
            weights = [8 if operation.body else 1 for operation in operations]
            left = CASES - statuses.total()
            for operation, weight in zip(operations, weights, strict=True):
                each = max(1, left * weight // sum(weights) // 2)
                for mode in (modes.POSITIVE, modes.NEGATIVE):
                    try:
                        strategy = operation.as_strategy(generation_mode=mode)
                        _send(client, strategy, each, turn, statuses, bad)
                    except Exception as error:  # nothing of an operation without parameters can be invalid
                        if mode is modes.POSITIVE or operation.body:
                            raise AssertionError(operation.label) from error
            if statuses.total() >= CASES:
                break
            operations = [operation for operation in operations if operation.body]
        assert client.get("/health").status_code == 200
    assert not bad, "\n".join(bad[:10])
    assert statuses[200] > CASES // 20, statuses


def _gentler(body: Any, path: str) -> Any:
    """Mostly, a body with few of its fields and a model that there is: else the first wrong one hides all others."""
    if not isinstance(body, dict) or path in ("/api/delete", "/api/copy") or DICE.random() < 0.2:
        return body
    kept = {name for name in body if name in ESSENTIAL or DICE.random() < 4 / len(body)}
    return {name: value for name, value in body.items() if name in kept} | {"model": "stories"}


def _send(client: httpx.Client, strategy: Any, most: int, turn: int, statuses: Counter[int], bad: list[str]) -> None:
    requests = import_peer("requests")

    @seed(turn)
    @hypothesis_settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        case.body = body = _gentler(case.body, case.path)
        sent = case.as_transport_kwargs(base_url=str(client.base_url))
        known = {
            name: sent[name] for name in ("params", "headers", "json", "data", "files", "cookies") if sent.get(name)
        }
        made = requests.Request(sent["method"], sent["url"], **known).prepare()  # it knows how to write what is no file
        try:
            answer = client.request(made.method, made.url, content=made.body, headers=dict(made.headers))
        except httpx.TimeoutException:
            return bad.append(f"no answer to {sent['method']} {sent['url']} {body!r}")
        statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            bad.append(f"{answer.status_code} {sent['method']} {sent['url']} {body!r}: {answer.text[:300]}")

    send()


FORM = b"""--b\r
Content-Disposition: form-data; name="purpose"\r
\r
user_data\r
--b\r
Content-Disposition: form-data; name="model"\r
\r
stories\r
--b\r
Content-Disposition: form-data; name="file"; filename="a.wav"\r
Content-Type: audio/wav\r
\r
RIFF\r
--b--\r
"""


def test_no_form_is_a_5xx(live: Live) -> None:
    """Forms are not in the document: these are made of a good one. Nothing stays of those that are refused."""
    dice, statuses = random.Random(3), Counter[int]()
    plain = FORM.replace(b'"model"', b'"expires_after[anchor]"').replace(b"stories", b"created_at")
    plain = plain.replace(
        b"--b--", b'--b\r\nContent-Disposition: form-data; name="expires_after[seconds]"\r\n\r\n3600\r\n--b--'
    )
    with httpx.Client(base_url=live.url, timeout=60) as client:
        before = {file["id"] for file in client.get("/v1/files").json()["data"]}
        for path, form in (("/v1/files", plain), ("/v1/audio/transcriptions", FORM)):
            for _ in range(max(CASES // 4, 100)):
                kind = dice.choice(
                    ["multipart/form-data; boundary=b"] * 9 + ["multipart/form-data", "text/plain; boundary=b"]
                )
                answer = client.post(path, content=mutate(form, dice, len(form)), headers={"Content-Type": kind})
                assert answer.status_code < 500, answer.text
                statuses[answer.status_code] += 1
        made = {file["id"] for file in client.get("/v1/files").json()["data"]} - before
        assert len(made) == statuses[200] > 0 and statuses[400] > 50
        for id in made:
            assert client.delete(f"/v1/files/{id}").status_code == 200
