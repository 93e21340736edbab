"""A model's time is over: it is unloaded, whichever API used it, and never under an answer."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from live_server import Live, Scripted, done, said, wait_for

from llamina.server.models import Entry

HI = [{"role": "user", "content": "hi"}]
APIS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/messages", {"messages": HI, "max_tokens": 5}),
    ("/api/chat", {"messages": HI}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
    ("/api/generate", {"prompt": "hi", "raw": True}),
]


@pytest.fixture
def kept(stage: Live) -> Callable[[float], Entry]:
    """Adopts a model that is kept so many seconds."""

    def adopt(seconds: float) -> Entry:
        stage.adopt("brief", lambda: Scripted([said(text="yes"), done()]))
        entry = stage.models.entries["brief"]
        entry.profile = msgspec.structs.replace(entry.profile, keep_alive=seconds)
        return entry

    return adopt


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), APIS, ids=[path for path, _ in APIS])
def test_every_api(stage: Live, kept: Callable[[float], Entry], path: str, body: dict[str, Any], stream: bool) -> None:
    entry = kept(0)
    answer = stage.post(path, {"model": "brief", "stream": stream} | body)
    assert answer.status_code == 200 and "yes" in answer.text and "unloaded" not in answer.text
    assert wait_for(lambda: entry.status == "unloaded" and entry.model is None and entry.timer is None)


@pytest.mark.parametrize("seconds", [-1, 600])
def test_a_model_is_kept_until_its_time_is_over(stage: Live, kept: Callable[[float], Entry], seconds: float) -> None:
    entry = kept(seconds)
    assert stage.post("/v1/chat/completions", {"model": "brief", "messages": HI}).status_code == 200
    assert wait_for(lambda: not entry.users)
    assert entry.model is not None and (entry.timer is None) == (seconds < 0)
