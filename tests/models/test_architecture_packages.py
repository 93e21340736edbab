"""Architectures from outside the package: by an entry point, the example of docs/add-a-model.md, or registered."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import models
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import open_model, write
from llamina.models.llama import Model as Llama

PAGE = Path(__file__).parents[2] / "docs" / "add-a-model.md"
NAME = "tinyllama-square"
TOKENS = [1, 25, 310, 44, 9]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    models._registered.clear()
    sys.modules.pop("square_llama", None)


@pytest.fixture
def renamed(golden: Any, tmp_path: Path) -> Path:
    """The tiny model that tells stories, as a file of an architecture that llamina does not have."""
    file = open_model(golden("stories260K.gguf"))
    values = {re.sub(r"^llama\.", f"{NAME}.", key): value for key, value in file.metadata.items()}
    write(tmp_path / "renamed.gguf", values | {"general.architecture": NAME}, file.tensors.values())
    return tmp_path / "renamed.gguf"


def install(folder: Path, code: str, entry: str) -> None:
    """A package as an installer leaves it."""
    (folder / "square_llama.py").write_text(code)
    facts = folder / "square_llama-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: square-llama\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(entry)


@pytest.fixture
def documented() -> tuple[str, str]:
    """The code of the page's example, and its entry point as it is installed."""
    text = PAGE.read_text(encoding="utf-8")
    text = text[text.index("## In a package of your own") :]
    toml, code = (re.search(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S) for kind in ("toml", "python"))
    assert toml and code
    lines = toml[1].replace('project.entry-points."llamina.architectures"', "llamina.architectures").replace('"', "")
    return code[1], lines


def test_the_example_of_the_page(
    documented: tuple[str, str], renamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, *documented)
    assert NAME not in models.architectures()
    monkeypatch.syspath_prepend(tmp_path)
    assert NAME in models.architectures() and models.about(NAME) == "Llama with the square of ReLU in its MLP."
    with llamina.load(renamed, threads=1, context=64) as engine, llamina.load(renamed, backend="reference") as other:
        assert {step.attrs["kind"] for step in engine.runner.plan.steps if step.op == "activate"} == {"relu_sqr"}
        np.testing.assert_allclose(engine.logits(TOKENS), other.logits(TOKENS), atol=2e-3)
        assert len(engine.generate("Once upon", max_tokens=8, temperature=0).tokens) == 8


def test_a_registered_class(renamed: Path, golden: Any) -> None:
    class Mine(Llama):
        """Mine."""

    with pytest.raises(UnsupportedModel, match="not known here"):
        llamina.load(renamed)
    llamina.register_architecture(NAME, Mine)
    assert models.about(NAME) == "Mine."
    with llamina.load(renamed, threads=1) as engine, llamina.load(golden("stories260K.gguf"), threads=1) as other:
        assert np.array_equal(engine.logits(TOKENS), other.logits(TOKENS))
    llamina.register_architecture(NAME, Llama)  # as a cell of a notebook that is run again does


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("llama", Llama, "is an architecture of llamina"),
        ("qwen3vl", Llama, "is an architecture of llamina"),
        ("", Llama, "must be the text"),
        ("x", dict, "must be a class that extends Decoder"),
        ("x", 7, "must be a class that extends Decoder"),
    ],
)
def test_refusals(name: str, model: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llamina.register_architecture(name, model)


@pytest.mark.parametrize(
    ("code", "message"),
    [("import nothing_at_all", "square-llama.*No module named"), ("Model = dict", "must be a class that extends")],
)
def test_a_package_that_cannot_be_used(
    code: str, message: str, renamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, code, f"[llamina.architectures]\n{NAME} = square_llama:Model\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedModel, match=message):
        llamina.load(renamed)
