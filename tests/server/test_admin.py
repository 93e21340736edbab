"""`/admin`: who reaches it, models, adapters and running requests."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import wait_for
from protected_server import ADMIN, CLIENT, Protected, protected

import llamina
from llamina import hub
from llamina.errors import DownloadError
from llamina.server.config import Config
from llamina.server.model import LocalModel
from llamina.server.protection.admin import AdminOnly, is_local
from llamina.server.protection.keys import Keys
from lora_files import draw, save


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    with protected(api_keys=[CLIENT], admin_key=ADMIN) as found:
        yield found


@pytest.fixture(scope="module")
def opened() -> Iterator[Protected]:
    with protected() as found:
        yield found


PATHS = [
    ("GET", "/admin/models"),
    ("POST", "/admin/models/load"),
    ("POST", "/admin/models/unload"),
    ("POST", "/admin/models/pull"),
    ("DELETE", "/admin/models/scripted"),
    ("GET", "/admin/loras"),
    ("POST", "/admin/loras"),
    ("DELETE", "/admin/loras/x"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("DELETE", "/admin/keys/x"),
    ("GET", "/admin/stats"),
    ("GET", "/admin/health"),
    ("GET", "/admin/requests"),
    ("DELETE", "/admin/requests/scripted/1"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_an_administrator_s_key_is_needed(method: str, path: str, server: Protected) -> None:
    assert server.manage(path, {}, method=method).status_code == 401
    assert server.manage(path, {}, "no", method=method).status_code == 401
    assert server.manage(path, {}, CLIENT, method=method).status_code == 403
    assert server.manage(path, {}, ADMIN, method=method).status_code not in (401, 403, 405, 500)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_the_public_listener_has_none_of_it(method: str, path: str, server: Protected) -> None:
    assert server.ask(path, {}, ADMIN, method=method).status_code == 404
    assert server.ask(path, {}, CLIENT, method=method).status_code == 403


def test_without_an_administrator_s_key_it_is_for_this_machine(opened: Protected) -> None:
    assert opened.manage("/admin/health").json()["status"] == "ok"
    assert is_local(("127.0.0.1", 1)) and is_local(("::1", 1)) and is_local(("127.8.8.8", 1))
    assert not is_local(("10.0.0.1", 1)) and not is_local(("testclient", 1)) and not is_local(None)


def test_forwarded_addresses_are_not_believed(opened: Protected) -> None:
    """Neither as ours nor as somebody else's: only the connection counts."""
    reached: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(1)

    async def ask(client: str) -> int:
        statuses: list[int] = []

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        config = Config()
        headers = [(b"x-forwarded-for", b"127.0.0.1"), (b"forwarded", b"for=127.0.0.1"), (b"x-real-ip", b"127.0.0.1")]
        scope = {"type": "http", "method": "GET", "path": "/admin/models", "headers": headers, "client": (client, 1)}
        await AdminOnly(app, config, Keys(config))(scope | {"app": opened.live.app}, None, send)  # type: ignore[arg-type]
        return statuses[0] if statuses else 200

    assert opened.live.call(ask("10.0.0.9")) == 403 and not reached
    assert opened.live.call(ask("127.0.0.1")) == 200 and reached
    headers = {"X-Forwarded-For": "10.0.0.9"}
    assert opened.manage("/admin/health", headers=headers).status_code == 200


# ---- models ----------------------------------------------------------------------------------------------


def of(server: Protected, id: str) -> dict[str, Any]:
    found = server.manage("/admin/models").json()["data"]
    return next((model for model in found if model["id"] == id), {})


def test_load_use_unload_delete(opened: Protected, golden: Callable[[str], Path]) -> None:
    path = str(golden("stories260K.gguf"))
    begun = opened.manage("/admin/models/load", {"id": "tiny", "path": path, "threads": 1, "context": 256})
    assert begun.status_code == 202 and begun.json()["status"] == "loading"
    assert opened.manage("/admin/models/load", {"id": "tiny", "path": path}).status_code == 409
    assert wait_for(lambda: of(opened, "tiny")["status"] == "ready", 60)
    loaded = of(opened, "tiny")["loaded"]
    assert loaded["context"] == 256 and loaded["pid"] and loaded["mem_bytes"] > loaded["weight_bytes"] > 0
    assert loaded["device"] == "CPU" and loaded["gpu_bytes"] == 0
    assert of(opened, "tiny")["last_used"] is None
    answer = opened.ask("/v1/completions", {"model": "tiny", "prompt": "Once", "max_tokens": 3})
    assert answer.status_code == 200 and abs(of(opened, "tiny")["last_used"] - time.time()) < 60
    stats = opened.manage("/admin/stats").json()
    pressure = stats["memory_pressure"]
    assert pressure["level"] in ("low", "medium", "high") and 0 < pressure["available"] <= pressure["total"]
    stats = stats["models"]["tiny"]
    assert stats["generated_tokens"] >= 3
    assert opened.manage("/admin/models/unload", {"id": "tiny"}).json()["status"] == "unloaded"
    again = opened.manage("/admin/models/load", {"id": "tiny"})
    assert again.status_code == 202 and wait_for(lambda: of(opened, "tiny")["status"] == "ready", 60)
    assert opened.manage("/admin/models/tiny", method="DELETE").json()["deleted"] is True
    assert of(opened, "tiny") == {} and Path(path).exists()


def test_a_model_that_cannot_be_loaded(opened: Protected, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    opened.manage("/admin/models/load", {"id": "broken", "path": str(broken)})
    assert wait_for(lambda: of(opened, "broken")["status"] == "failed", 60)
    assert of(opened, "broken")["error"]
    assert opened.manage("/admin/health").json()["status"] == "degraded"
    opened.manage("/admin/models/broken", method="DELETE")
    assert opened.manage("/admin/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "../x", "path": "y"},
        {"id": "x", "path": "y", "model": "z"},
        {"id": "scripted", "context": 5},
        {"id": "scripted", "quant": "q4_0"},
        {"id": "x", "path": "y", "quant": "q4_0", "quantize": "q8_0"},
        {"id": "x", "path": "y", "nothing": 1},
        {"id": "x", "path": "y", "context": "5"},
    ],
)
def test_loads_that_are_refused(body: Any, opened: Protected) -> None:
    assert opened.manage("/admin/models/load", body).status_code == 400


def test_a_model_in_use_is_unloaded_by_force_only(opened: Protected) -> None:
    entry = opened.live.models.entries["scripted"]
    entry.users += 1
    try:
        refused = opened.manage("/admin/models/unload", {"id": "scripted"})
        assert refused.status_code == 409 and refused.json()["error"]["param"] == "force"
        assert opened.manage("/admin/models/scripted", method="DELETE").status_code == 409
    finally:
        entry.users -= 1


def test_pulls(opened: Protected, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = [], []

    def pull(name: str, progress: Any) -> Path:
        if name == "none":
            raise DownloadError("it is not there")
        progress(name, 1, 2)
        begun.append(name)
        assert wait_for(lambda: bool(go))
        return golden("stories260K.gguf")

    monkeypatch.setattr(hub, "pull", pull)
    assert opened.manage("/admin/models/pull", {"model": "some/model", "id": "mine"}).status_code == 202
    assert wait_for(lambda: bool(begun))
    assert wait_for(lambda: opened.manage("/admin/models").json()["pulls"][0].get("completed") == 1)
    assert opened.manage("/admin/models/pull", {"model": "some/model", "id": "mine"}).status_code == 409
    go.append(1)
    assert wait_for(lambda: of(opened, "mine").get("status") == "unloaded")
    opened.manage("/admin/models/pull", {"model": "none"})
    assert wait_for(lambda: opened.manage("/admin/models").json()["pulls"][0]["status"] == "failed")
    opened.manage("/admin/models/mine", method="DELETE")


# ---- adapters and requests -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(opened: Protected, golden: Callable[[str], Path]) -> llamina.Engine:
    engine = llamina.load(golden("stories260K.gguf"), threads=1, context=512)
    opened.live.adopt("local", lambda: LocalModel(engine))
    return engine


def test_loras(opened: Protected, engine: llamina.Engine, golden: Callable[[str], Path], tmp_path: Path) -> None:
    pairs = draw(golden("stories260K.gguf"), ["blk.0.attn_q.weight"], rank=2, seed=1)
    path = save(tmp_path / "some.gguf", "llama", pairs)
    body = {"model": "local", "path": str(path), "name": "mine"}
    assert opened.manage("/admin/loras", body).json()["name"] == "mine"
    assert opened.manage("/admin/loras?model=local").json()["data"] == [
        {"name": "mine", "model": "local", "path": str(path)}
    ]
    asked = {"model": "local", "prompt": "Once", "max_tokens": 2, "lora": "mine"}
    assert opened.ask("/v1/completions", asked).status_code == 200
    assert opened.manage("/admin/loras/mine?model=local", method="DELETE").json()["deleted"] is True
    assert opened.ask("/v1/completions", asked).status_code == 400
    assert opened.manage("/admin/loras/mine?model=local", method="DELETE").status_code == 404
    missing = body | {"path": str(tmp_path / "nothing.gguf")}
    assert 400 <= opened.manage("/admin/loras", missing).status_code < 500


def test_a_running_request_is_listed_and_cancelled(opened: Protected, engine: llamina.Engine) -> None:
    body = {"model": "local", "prompt": "Once", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True}
    with httpx.stream("POST", opened.url + "/v1/completions", json=body | {"stream": True}, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        listed = opened.manage("/admin/requests").json()["data"]
        assert [one["model"] for one in listed] == ["local"] and "Once" not in str(listed)
        path = f"/admin/requests/local/{listed[0]['id']}"
        assert opened.manage(path, method="DELETE").json()["cancelled"] is True
        rest = "\n".join(lines)
    assert '"finish_reason":"cancelled"' in rest
    assert wait_for(lambda: opened.manage("/admin/requests").json()["data"] == [])
    assert opened.manage(path, method="DELETE").status_code == 404


def test_a_seed_s_name_of_quantize(opened: Protected) -> None:
    opened.manage("/admin/models/load", {"id": "absent", "path": "absent.gguf", "quant": "q4_k"})
    assert of(opened, "absent")["profile"]["quantize"] == "q4_k"
    assert wait_for(lambda: of(opened, "absent")["status"] == "failed", 60)
    opened.manage("/admin/models/absent", method="DELETE")
