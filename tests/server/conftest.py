"""Fixtures of the server's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_server import Live, serving

from llamina.engine import load


@pytest.fixture(scope="session")
def live(smollm2: Path, golden: Callable[[str], Path]) -> Iterator[Live]:
    """A server with SmolLM2 (`smollm2`), which chats, and stories260K (`stories`), which is quick."""
    engines = {
        "smollm2": load(smollm2, context=2048, max_sequences=4),
        "stories": load(golden("stories260K.gguf"), max_sequences=8),
    }
    with serving(engines) as server:
        yield server


@pytest.fixture(autouse=True)
def untouched(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the shared server still has its own engines, and they are open."""
    yield
    if "live" in request.fixturenames:
        server: Live = request.getfixturevalue("live")
        assert not any(engine.runner.closed for engine in server.engines.values())
