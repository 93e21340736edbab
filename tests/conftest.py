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
