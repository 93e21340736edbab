"""API keys: what is denied without one, what their scopes allow, how they are made and revoked."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
import websockets.exceptions
import websockets.sync.client
from protected_server import ADMIN, CHAT, CLIENT, Protected, protected

from llamina.errors import RequestError
from llamina.server.app import APIS, build_app
from llamina.server.config import Config
from llamina.server.protection.keys import Keys, hashed, new_key
from llamina.server.protection.scopes import PUBLIC, scope_for
from llamina.server.protection.settings import ApiKey
from llamina.server.store import Kept
from llamina.server.store.store import made


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    narrow = ApiKey(hashed("sk-embed"), "vectors", ["embed:read"])
    late = ApiKey(hashed("sk-late"), "late", expires=int(time.time()) - 1)
    with protected(api_keys=[CLIENT, f"sha256:{hashed('sk-second')}"], keys=[narrow, late], admin_key=ADMIN) as found:
        yield found


def paths() -> list[tuple[str, str]]:
    """Every path of the APIs with its method; parameters are filled in."""
    found = []
    for api in APIS:
        for route in api.routes:
            path = re.sub(r"\{.*?\}", "x", route.path)
            found += [(path, method) for method in sorted(getattr(route, "methods", None) or {"GET"})]
    return found


@pytest.mark.parametrize(("path", "method"), paths())
def test_everything_is_denied_without_a_key(path: str, method: str, server: Protected) -> None:
    answer = server.ask(path, {}, method=method)
    if path in PUBLIC:
        assert answer.status_code == 200
    else:
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/metrics", "/docs", "/openapi.json", "/nothing", "/", "/v1/nothing", "//health"])
def test_paths_that_are_not_there_are_denied_too(path: str, server: Protected) -> None:
    assert server.ask(path).status_code == 401


@pytest.mark.parametrize("key", [CLIENT, "sk-second", ADMIN])
def test_keys_that_are_known(key: str, server: Protected) -> None:
    assert server.ask("/v1/models", key=key).status_code == 200
    assert server.ask("/v1/models", headers={"x-api-key": key}).status_code == 200
    assert server.ask("/v1/chat/completions", CHAT, key).json()["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("key", ["sk-other", CLIENT + "x", CLIENT[:-1], "sk-late", hashed(CLIENT), "ü", "a.b.c"])
def test_keys_that_are_not(key: str, server: Protected) -> None:
    headers = {"Authorization": f"Bearer {key}".encode()}
    answer = httpx.get(server.url + "/v1/models", headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
    assert key not in answer.text


@pytest.mark.parametrize("value", ["", "Bearer", "Basic " + CLIENT, CLIENT, "bearer"])
def test_headers_that_show_no_key(value: str, server: Protected) -> None:
    assert server.ask("/v1/models", headers={"Authorization": value}).status_code == 401


def test_a_key_in_the_address_is_not_taken(server: Protected) -> None:
    assert server.ask(f"/v1/models?key={CLIENT}&api_key={CLIENT}").status_code == 401


def test_each_api_has_its_own_shape(server: Protected) -> None:
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="no", max_retries=0).models.list()
    wrong = anthropic.Anthropic(base_url=server.url, api_key="no", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as caught:
        wrong.messages.create(model="scripted", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
    assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    with pytest.raises(ollama.ResponseError, match="API key") as refused:
        ollama.Client(server.url).list()
    assert refused.value.status_code == 401


def test_official_clients_with_a_key(server: Protected) -> None:
    assert openai.OpenAI(base_url=f"{server.url}/v1", api_key=CLIENT).models.list().data
    client = anthropic.Anthropic(base_url=server.url, api_key=CLIENT)
    answer = client.messages.create(model="scripted", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
    assert answer.content[0].type == "text" and answer.content[0].text == "Hello"
    assert ollama.Client(server.url, headers={"Authorization": f"Bearer {CLIENT}"}).list().models


# ---- scopes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "scope"),
    [
        ("/v1/chat/completions", "POST", "chat:write"),
        ("/v1/chat/ws", "POST", "chat:write"),
        ("/v1/responses/resp_1", "GET", "chat:read"),
        ("/v1/responses/resp_1", "DELETE", "chat:write"),
        ("/v1/embeddings", "POST", "embed:read"),
        ("/api/embed", "POST", "embed:read"),
        ("/v1/models/some/model", "GET", None),
        ("/api/tags", "GET", None),
        ("/api/pull", "POST", "admin:write"),
        ("/api/create", "POST", "admin:write"),
        ("/api/copy", "POST", "admin:write"),
        ("/api/delete", "DELETE", "admin:write"),
        ("/metrics", "GET", "admin:read"),
        ("/slots", "GET", "admin:read"),
        ("/props", "GET", None),
        ("/props", "POST", "admin:write"),
        ("/lora-adapters", "POST", "admin:write"),
        ("/slots/0", "POST", "admin:write"),
        ("/admin/models", "GET", "admin:read"),
        ("/admin/keys", "POST", "admin:write"),
        ("/anything", "POST", "admin:write"),
        ("/v1modelsx", "GET", "admin:read"),
    ],
)
def test_the_scope_that_a_path_needs(path: str, method: str, scope: str | None) -> None:
    assert scope_for(path, method) == scope


ADMINISTRATORS = (
    "/api/pull",
    "/api/create",
    "/api/copy",
    "/api/delete",
    "/metrics",
    "/slots",
    "/props",
    "/lora-adapters",
    "/dashboard/",
)


@pytest.mark.parametrize(("path", "method"), paths())
def test_every_path_has_a_line_in_the_table(path: str, method: str) -> None:
    """One that has none needs an administrator; that must be meant."""
    if path not in PUBLIC and not path.startswith(ADMINISTRATORS):
        assert not (scope_for(path, method) or "").startswith("admin")


def test_a_key_without_the_scope(server: Protected) -> None:
    answer = server.ask("/v1/chat/completions", CHAT, "sk-embed")
    assert answer.status_code == 403 and "chat:write" in answer.json()["error"]["message"]
    assert server.ask("/v1/models", key="sk-embed").status_code == 200


@pytest.mark.parametrize(
    ("path", "method"),
    [("/api/pull", "POST"), ("/api/create", "POST"), ("/api/copy", "POST"), ("/api/delete", "DELETE")],
)
def test_models_are_changed_by_administrators(path: str, method: str, server: Protected) -> None:
    answer = server.ask(path, {"model": "scripted"}, CLIENT, method)
    assert answer.status_code == 403 and "admin:write" in answer.json()["error"]
    allowed = server.ask(path, {}, ADMIN, method)
    assert allowed.status_code == 400


def test_nobody_is_let_in_while_keys_are_read() -> None:
    """Two requests at a server's start: the second does not pass before the first knows whether there are keys."""

    class Slow:
        def __init__(self) -> None:
            self.gate, self.broken = asyncio.Event(), True

        async def all(self, kind: str) -> list[Kept]:
            await self.gate.wait()
            if self.broken:
                raise OSError("the database is away")
            scopes = ["chat:write"]
            return [made(kind, "key_1", {"sha256": hashed("k"), "scopes": scopes, "expires": None, "rates": None})]

    async def scene() -> None:
        keys, store = Keys(Config()), Slow()
        first, second = (asyncio.ensure_future(keys.refresh(store)) for _ in range(2))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert not second.done()
        store.gate.set()
        assert all(isinstance(found, OSError) for found in await asyncio.gather(first, second, return_exceptions=True))
        store.broken = False
        await keys.refresh(store)  # type: ignore[arg-type]
        assert keys.required and keys.find("k") is not None

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/completion"])
def test_only_administrators_go_before_others(path: str, server: Protected) -> None:
    body = CHAT if "chat" in path else {"model": "scripted", "input": "x"} if "resp" in path else {"prompt": "x"}
    refused = server.ask(path, body | {"priority": 1}, CLIENT)
    assert refused.status_code == 403 and refused.json()["error"]["param"] == "priority"
    if path != "/completion":  # which asks more of a model than the scripted one says
        assert server.ask(path, body | {"priority": 1}, ADMIN).status_code == 200
        assert server.ask(path, body | {"priority": -1}, CLIENT).status_code == 200


def test_a_batch_is_no_way_around_a_key_s_scopes() -> None:
    narrow = ApiKey(hashed("sk-chat"), "chat", ["chat:read", "chat:write"])
    body = {"input_jsonl": "{}", "endpoint": "/v1/embeddings"}
    with protected(keys=[narrow], api_keys=[CLIENT]) as server:
        assert server.ask("/v1/embeddings", {"input": "x"}, "sk-chat").status_code == 403
        assert server.ask("/v1/batch_jobs", body, "sk-chat").status_code == 403
        file = {"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"}
        assert server.ask("/v1/batches", file, "sk-chat").status_code == 403
        assert server.ask("/v1/batch_jobs", body, CLIENT).status_code == 202
        assert server.ask("/v1/batch_jobs", body | {"endpoint": "/v1/chat/completions"}, "sk-chat").status_code == 202


def test_a_websocket_without_a_key_is_refused(server: Protected) -> None:
    url = server.url.replace("http", "ws") + "/v1/chat/ws"
    with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
        websockets.sync.client.connect(url)
    assert caught.value.response.status_code == 401


# ---- made at run time ------------------------------------------------------------------------------------


def test_keys_are_made_listed_and_revoked(server: Protected) -> None:
    made = server.manage("/admin/keys", {"name": "laptop", "expires_in": 3600}, ADMIN)
    assert made.status_code == 201
    key, id = made.json()["key"], made.json()["id"]
    assert len(key) >= 43 and set(made.json()["scopes"]) == {"chat:read", "chat:write", "embed:read"}
    assert server.ask("/v1/models", key=key).status_code == 200
    listed = server.manage("/admin/keys", key=ADMIN)
    assert [one["name"] for one in listed.json()["data"]] == ["laptop"] and key not in listed.text
    assert hashed(key) not in listed.text
    assert server.manage(f"/admin/keys/{id}", key=ADMIN, method="DELETE").json()["deleted"] is True
    assert server.ask("/v1/models", key=key).status_code == 401
    assert server.manage(f"/admin/keys/{id}", key=ADMIN, method="DELETE").status_code == 404
    assert server.manage("/admin/keys", key=ADMIN).json()["data"] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x", "scopes": ["root"]}, "scopes"),
        ({"name": ""}, "name"),
        ({"name": "x", "expires_in": 0}, "expires_in"),
        ({"name": "x", "expires_in": 2**63}, "expires_in"),
        ({"name": "x", "rates": {"requests": -1}}, "rates.requests"),
        ({"name": "x", "until": 5}, "until"),
        ({}, "name"),
    ],
)
def test_keys_that_cannot_be_made(body: Any, param: str, server: Protected) -> None:
    answer = server.manage("/admin/keys", body, ADMIN)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_only_the_hash_of_a_key_is_kept(server: Protected) -> None:
    key = server.manage("/admin/keys", {"name": "secret"}, ADMIN).json()["key"]
    store = server.live.call(_store(server))
    everything = server.live.call(store.all("key"))
    assert any(one.body.get("sha256") == hashed(key) for one in everything)
    assert key not in str(everything)


async def _store(server: Protected) -> Any:
    return server.live.app.state.server.store


def test_the_first_key_closes_an_open_server() -> None:
    """And it stays closed when that is revoked: a server must not open by itself."""
    with protected() as server:
        assert server.ask("/v1/models").status_code == 200
        made = server.manage("/admin/keys", {"name": "first"}).json()
        assert server.ask("/v1/models").status_code == 401
        assert server.ask("/v1/models", key=made["key"]).status_code == 200
        server.manage(f"/admin/keys/{made['id']}", method="DELETE")
        assert server.ask("/v1/models").status_code == 401
        again = server.manage("/admin/keys", {"name": "second"}).json()
        assert server.ask("/v1/models", key=again["key"]).status_code == 200


def test_new_keys_are_random() -> None:
    assert len({new_key() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "settings",
    [
        {"api_keys": ["sha256:abc"]},
        {"api_keys": [""]},
        {"admin_key": " "},
        {"keys": [ApiKey("abc")]},
        {"keys": [ApiKey("0" * 64, scopes=["all"])]},
    ],
)
def test_settings_that_do_not_protect(settings: Any) -> None:
    with pytest.raises(RequestError):
        build_app(Config(**settings))


def test_an_expired_key_does_not_open_the_server() -> None:
    keys = Keys(Config(keys=[ApiKey("0" * 64, expires=1)]))
    assert keys.required and keys.find("x") is None
