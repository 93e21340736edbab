"""Fixtures of the server's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, launched
from live_server import Live, serving

from llamina.engine import load
from llamina.server.config import Config


@pytest.fixture(scope="module")  # while it runs, the thread has an event loop, and tests that begin one fail
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="session")
def stage() -> Iterator[Live]:
    """A server without models, for scripted ones."""
    with serving({}) as server:
        yield server


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens tabs on a server's page; in the end, none may have logged an error or asked another machine."""
    tabs: list[Tab] = []

    def open(live: Live, **options: Any) -> Tab:
        tabs.append(Tab(browser, live.url, **options))
        return tabs[-1]

    yield open
    for tab in tabs:
        tab.close()


@pytest.fixture(scope="session")
def live(smollm2: Path, golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with SmolLM2 (`smollm2`), which chats, and stories260K (`stories`), which is quick."""
    engines = {
        "smollm2": load(smollm2, context=2048, max_sequences=4),
        "stories": load(golden("stories260K.gguf"), max_sequences=8),
    }
    roomy = Config(data=str(tmp_path_factory.mktemp("live")), max_models=100)  # a test's model never drives these out
    with serving(engines, roomy) as server:
        yield server


@pytest.fixture(autouse=True)
def untouched(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the shared server has the models it had before, and its own engines are open."""
    if "live" not in request.fixturenames:
        yield
        return
    server: Live = request.getfixturevalue("live")
    before = set(server.models.entries)
    yield
    for id in set(server.models.entries) - before:
        server.call(server.models.unload(server.models.entries.pop(id)))
    assert not any(engine.runner.closed for engine in server.engines.values())
