"""An empty model store and Hugging Face cache for each test, no token, and a hub of our own for those who ask."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fake_hub import FakeHub, serving


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where pulled models go."""
    from huggingface_hub import constants

    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "LLAMINA_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeHub]]:
    """Starts the hub that HF_ENDPOINT names. Ranges are small, and nobody waits long."""
    from llamina.hub import transfer, web

    monkeypatch.setattr(web, "PAUSE", 0.001)
    monkeypatch.setattr(transfer, "NOTED", 1 << 14)
    monkeypatch.setattr(transfer, "SMALLEST", 1 << 16)
    monkeypatch.setattr(transfer, "TICK", 0.005)
    with ExitStack() as stack:

        def start(files: dict[str, bytes], **behaviour: Any) -> FakeHub:
            hub = stack.enter_context(serving(files, **behaviour))
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
            return hub

        yield start
