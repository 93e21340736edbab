"""The tiny model that is measured. No test looks at how fast anything is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llamina.bench.contestant import Setup


@pytest.fixture(scope="session")
def stories(golden: Callable[[str], Path]) -> Path:
    """The 260 K parameter Llama, F32 weights, 512 tokens in its vocabulary."""
    return golden("stories260K.gguf")


@pytest.fixture(scope="session")
def setup(stories: Path) -> Setup:
    """llamina with room for three sequences of 48 tokens."""
    return Setup("llamina", str(stories), 1, "f16", 3, 48, 512)
