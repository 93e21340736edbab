"""Fixtures for all tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(os.environ.get("LLAMINA_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Path]:
    """The path of a file of facts computed by llama.cpp; without it the test skips, and in CI fails."""

    def find(name: str) -> Path:
        path = GOLDEN / name
        if not path.exists():
            message = f"{path} is not there: set LLAMINA_GOLDEN to the folder of golden facts"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        return path

    return find


def pulled(name: str) -> Path:
    """A model pulled once; without a network the test skips, and in CI fails."""
    from llamina import hub
    from llamina.errors import DownloadError

    try:
        return hub.pull(name)
    except DownloadError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model."""
    return pulled("smollm2")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M, 253 MB: fetched in CI, elsewhere only if it has been pulled already."""
    from llamina import hub
    from llamina.errors import ModelNotFound

    try:
        return hub.find("gemma3-270m")
    except ModelNotFound:
        if os.environ.get("CI") == "true":
            return pulled("gemma3-270m")
        pytest.skip("gemma3-270m is not here: llamina pull gemma3-270m")
