"""An empty model store and Hugging Face cache for each test."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where pulled models go."""
    from huggingface_hub import constants

    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    return folder
