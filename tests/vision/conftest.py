"""Tiny mmproj files of each family."""

from collections.abc import Callable
from pathlib import Path

import pytest

from golden import vision_models


@pytest.fixture(scope="session")
def mmproj(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The mmproj file of a family in vision_models.py."""
    folder = tmp_path_factory.mktemp("mmproj")

    def find(family: str) -> Path:
        path = folder / f"mmproj-{family}.gguf"
        if not path.exists():
            vision_models.write(family, path)
        return path

    return find
