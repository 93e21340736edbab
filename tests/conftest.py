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


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model, pulled once; without a network the test skips, and in CI fails."""
    from llamina import hub
    from llamina.errors import DownloadError

    try:
        return hub.pull(hub.DEFAULT)
    except DownloadError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
