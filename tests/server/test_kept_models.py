"""Models that were made known while the server ran are known after a restart."""

import logging
from collections.abc import Callable
from pathlib import Path

import ollama
import pytest
from live_server import PATIENCE, Live, serving

from llamina import hub
from llamina.engine import load
from llamina.server.config import Config, ModelDefaults


def client_of(live: Live) -> ollama.Client:
    return ollama.Client(host=live.url, timeout=PATIENCE)


def test_models_persist(
    tmp_path: Path, golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stories = golden("stories260K.gguf")
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(stories.read_bytes())
    monkeypatch.setattr(hub, "pull", lambda name, progress: stories if name == "gemma3-270m" else copy)
    config = Config(data=str(tmp_path / "data"), defaults=ModelDefaults(threads=1))
    with serving({"tiny": load(stories, threads=1)}, config) as live:
        client = client_of(live)
        client.pull("gemma3-270m")
        client.pull("qwen3-0.6b")
        client.create("poet", from_="tiny", system="Rhyme.", parameters={"num_predict": 3, "temperature": 0})
        client.create("poet", from_="tiny", system="Rhyme!", parameters={"num_predict": 3, "temperature": 0})
        client.copy("poet", "bard")
        client.delete("bard")
        told = client.show("poet")
    copy.unlink()  # as `llamina rm` does
    caplog.set_level(logging.WARNING, "llamina.server")
    with serving({}, config) as live:
        client = client_of(live)
        assert {model.model for model in client.list().models} == {"gemma3-270m:latest", "poet:latest"}
        assert "qwen3-0.6b is left out: its file is gone" in caplog.text
        again = client.show("poet")
        assert (again.modelfile, again.parameters) == (told.modelfile, told.parameters) and "Rhyme!" in again.modelfile
        answer = client.generate("poet", "Once upon a time")
        assert answer.eval_count == 3
        assert live.models.entries["gemma3-270m"].profile.threads == 1, "defaults are those of the server"
        client.delete("poet")
    with serving({}, config) as live:
        assert set(live.models.entries) == {"gemma3-270m"}
