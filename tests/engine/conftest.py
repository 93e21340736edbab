"""Engines for the tests of this folder: a tiny trained model for everything, a real one where it must be."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import llamina
from llamina import Engine


@pytest.fixture(scope="session")
def stories(golden: Callable[[str], Path]) -> Path:
    """The 260 K parameter Llama, F32 weights."""
    return golden("stories260K.gguf")


@pytest.fixture(scope="module")
def engine(stories: Path) -> Iterator[Engine]:
    """The tiny model with ample room. Tests leave it idle, with all its pages free."""
    with llamina.load(stories, threads=1, step_tokens=512) as found:
        yield found


@pytest.fixture(autouse=True)
def idle(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the shared engine has nothing to do and no page is lost."""
    yield
    if "engine" in request.fixturenames:
        shared: Engine = request.getfixturevalue("engine")
        assert not shared.core.running and not shared.core.waiting
        assert shared.core.pages.free == shared.core.pages.total


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[Engine]:
    """SmolLM2-135M, Q4_1."""
    with llamina.load(smollm2, threads=2, context=1100) as found:
        yield found
