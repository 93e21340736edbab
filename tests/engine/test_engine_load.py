"""From a name to an engine: the default model, fetching, sampling defaults, files that are no models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llamina
from llamina import hub
from llamina.errors import ModelFileError, ModelNotFound, RequestError, UnsupportedModel
from llamina.gguf import open_model


@pytest.fixture
def fetched(stories: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Every name is that of the tiny model; which were asked for, and with which progress."""
    asked: list[tuple[str, object]] = []

    def obtain(name: str, progress: object = None, **_: object) -> Path:
        asked.append((name, progress))
        return stories

    monkeypatch.setattr("llamina.hub.download.obtain", obtain)
    monkeypatch.setitem(hub.__dict__, "obtain", obtain)
    return asked


def test_without_a_model_the_default_is_fetched(fetched: list[tuple[str, object]]) -> None:
    with llamina.load(threads=1) as engine:
        assert engine.generate("Once", max_tokens=2).tokens
    assert fetched == [(hub.DEFAULT, None)], "no terminal, no bar"


def test_a_name_is_fetched_with_progress(fetched: list[tuple[str, object]]) -> None:
    def move(name: str, done: int, total: int) -> None:
        """Never called: the fake fetches nothing."""

    llamina.load("some-model", threads=1, progress=move).close()
    assert fetched == [("some-model", move)]


def test_an_unknown_name_is_told_with_those_that_come_near() -> None:
    with pytest.raises(ModelNotFound, match="did you mean smollm2"):
        llamina.load("smolm2")


def test_sampling_defaults_of_the_file(stories: Path) -> None:
    """A request that says nothing has the file's; one that says something has its own, and the file's others."""
    file = open_model(stories)
    file.metadata.update({"general.sampling.temp": 0.0, "general.sampling.top_k": 3})
    with llamina.load(file, threads=1) as engine, llamina.load(stories, threads=1) as plain:
        greedy = plain.generate("Once upon a time", temperature=0, max_tokens=20).tokens
        assert engine.generate("Once upon a time", max_tokens=20).tokens == greedy
        warm: dict[str, Any] = {"temperature": 1.5, "seed": 3, "max_tokens": 20}
        assert engine.generate("Once", **warm).tokens == plain.generate("Once", top_k=3, **warm).tokens
        assert [s.result().tokens for s in engine.streams("Once upon a time", 2, max_tokens=20)] == [greedy] * 2


def test_a_lora_is_no_model(tmp_path: Path, lora: Callable[[Path], Path]) -> None:
    with pytest.raises(UnsupportedModel, match="is a LoRA adapter"):
        llamina.load(lora(tmp_path))


@pytest.fixture
def lora(stories: Path) -> Callable[[Path], Path]:
    """Writes a file that says it is an adapter."""

    def write(folder: Path) -> Path:
        import gguf

        path = folder / "lora.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_string("general.type", "adapter")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_a_template_and_sampling_in_place_of_the_model_s(golden: Any) -> None:
    path, template = golden("stories260K.gguf"), "{{ messages[0].content }}"
    with llamina.load(path, chat_template=template, sampling={"temperature": 0, "top_k": 3}) as engine:
        assert engine.tokenizer.chat_templates == {"default": template}
        answers = {engine.chat("Once upon a time", max_tokens=8).text for _ in range(2)}
        assert answers == {engine.generate("Once upon a time", max_tokens=8, temperature=0).text}
        assert engine.runner.sampling["top_k"] == 3
    for wrong in ({"temperatur": 1}, {"top_p": 7}):
        with pytest.raises(RequestError, match=r"temperature|top_p"):
            llamina.load(path, sampling=wrong)


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(b"x" + data)[1:]])
def test_a_file_in_memory(stories: Path, kind: Callable[[bytes], Any]) -> None:
    with llamina.load(kind(stories.read_bytes()), threads=1) as engine, llamina.load(stories, threads=1) as plain:
        wanted = plain.generate("Once upon a time", temperature=0, max_tokens=20).tokens
        assert engine.generate("Once upon a time", temperature=0, max_tokens=20).tokens == wanted
        assert not engine.runner.pictures.there


def test_bytes_that_are_no_model(stories: Path) -> None:
    with pytest.raises(ModelFileError, match="there are no bytes"):
        llamina.load(b"")
    with pytest.raises(ModelFileError, match="bytes in memory: byte 0: b'nope'"):
        llamina.load(b"nope, not a model")
    with pytest.raises(ModelFileError, match=r"bytes in memory: .* the file is damaged"):
        llamina.load(stories.read_bytes()[:5000])
    with pytest.raises(RequestError, match="offload reads weights from a file"):
        llamina.load(stories.read_bytes(), offload="budget", memory_budget=1 << 20)


def test_exact_holds_on_the_cpu_anyway(stories: Path) -> None:
    found = []
    for options in ({"exact": True, "step_tokens": 3}, {}):
        with llamina.load(stories, threads=1, backend="cpu", **options) as engine:  # type: ignore[arg-type]
            found.append(engine.logits([1, 5, 7, 9, 11]).tobytes())
    assert found[0] == found[1]
