"""Ways to call the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llamina.cli import cli

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`invoke("run", "hello", input=...)` in this process; stdin is empty, and no terminal."""
    for name in ("LLAMINA_MODEL", "LLAMINA_THREADS", "LLAMINA_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, [str(a) for a in arguments], input=input)

    return call


@pytest.fixture
def stories(golden: Callable[[str], Path]) -> Path:
    """A tiny model that tells stories; it has no chat template."""
    return golden("stories260K.gguf")


@pytest.fixture
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with no models in it, ours or Hugging Face's; the folder of ours."""
    from huggingface_hub import constants

    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    return tmp_path / "cache" / "models"
