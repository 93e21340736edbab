"""Ways to call the command line, and the tiny model that the tools work on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamina.cli import cli


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """`invoke("hash", path)` in this process."""
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def stories(golden: Callable[[str], Path]) -> Path:
    """A tiny model that tells stories."""
    return golden("stories260K.gguf")
