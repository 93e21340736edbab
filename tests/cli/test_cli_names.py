"""Names of models and commands that are nearly right, and files that are no models."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from lora_files import draw, save

Invoke = Callable[..., Result]
READERS = [["run", "x"], ["embed", "x"], ["rerank", "x", "y"], ["perplexity", __file__], ["bench"], ["bench", "serve"]]


@pytest.fixture
def lora(stories: Path, tmp_path: Path) -> Path:
    return save(tmp_path / "pirate.gguf", "llama", draw(stories, ["blk.0.ffn_down.weight"], 4, 0, 1.0))


@pytest.mark.parametrize("verb", READERS, ids=lambda verb: " ".join(verb[:2]))
def test_an_adapter_as_a_model(invoke: Invoke, lora: Path, verb: list[str]) -> None:
    result = invoke(*verb, "-m", lora)
    assert result.exit_code == 1
    assert f"{lora} is a LoRA adapter: use --lora {lora}, and -m for the model it belongs to" in result.stderr


def test_plans_and_facts_of_an_adapter(invoke: Invoke, lora: Path) -> None:
    for verb in ("show", "diff"):
        assert "is a LoRA adapter" in invoke("plan", verb, lora).stderr
    shown = invoke("show", lora)
    assert shown.exit_code == 0 and "no: it is a LoRA adapter" in shown.stdout


@pytest.mark.parametrize("verb", [*[[*verb, "-m"] for verb in READERS], ["show"], ["plan", "show"]], ids=" ".join)
def test_a_folder_as_a_model(invoke: Invoke, tmp_path: Path, verb: list[str]) -> None:
    result = invoke(*verb, tmp_path)
    assert result.exit_code == 3 and f"{tmp_path} is a folder" in result.stderr


def test_the_way_out_of_a_folder(invoke: Invoke, tmp_path: Path) -> None:
    def told() -> str:
        return invoke("run", "x", "-m", tmp_path).stderr

    assert "there is none in it" in told()
    (tmp_path / "config.json").touch()
    assert f"llamina convert {tmp_path}" in told()
    (tmp_path / "adapter_config.json").touch()
    assert "use --lora" in told()
    (tmp_path / "a.gguf").touch()
    assert f"such as {tmp_path / 'a.gguf'}" in told()


@pytest.mark.parametrize("verb", [["run", "x", "-m"], ["show"], ["plan", "show"]], ids=" ".join)
def test_a_name_that_is_nearly_right(invoke: Invoke, empty_store: Path, verb: list[str]) -> None:
    result = invoke(*verb, "smolm2")
    assert result.exit_code == 3 and "did you mean smollm2?" in result.stderr
    assert "did you mean" not in invoke(*verb, "nothing").stderr


def test_a_pulled_model_that_is_nearly_right(invoke: Invoke, empty_store: Path, stories: Path) -> None:
    empty_store.mkdir(parents=True)
    (empty_store / "Story.F32.gguf").write_bytes(stories.read_bytes())
    assert "did you mean Story.F32?" in invoke("show", "storie.f32").stderr


@pytest.mark.parametrize(("name", "meant"), [("rnu", "run"), ("perplxity", "perplexity"), ("lst", "list")])
def test_a_command_that_is_nearly_right(invoke: Invoke, name: str, meant: str) -> None:
    result = invoke(name, "x")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"error: there is no command {name!r}: did you mean {meant}?"
