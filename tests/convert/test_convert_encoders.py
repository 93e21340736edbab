"""Tiny models that see, converted: rows of tiles are those that `transformers` computed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from seeing_folders import FACTS, MODELS, folder, tiles

from llamina import vision
from llamina.backends import backend
from llamina.cli import cli
from llamina.convert import convert
from llamina.convert.encoders import ENCODERS
from llamina.engine.runner.load import weights_of
from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.gguf import open_model
from llamina.vision import EncoderRunner, Rows, read_picture

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The mmproj file that a stored model becomes."""
    top = tmp_path_factory.mktemp("encoders")

    def find(name: str, type: str = "f32") -> Path:
        path = top / f"mmproj-{name}-{type}.gguf"
        if not path.exists():
            convert(folder(top / f"{name}-{type}" / "tiny", name), path, type=type, mmproj=True)
        return path

    return find


@pytest.fixture
def running() -> Iterator[Callable[[Path], EncoderRunner]]:
    found: list[EncoderRunner] = []

    def run(path: Path) -> EncoderRunner:
        file = open_model(path)
        found.append(EncoderRunner(vision.build(file.metadata, weights_of(file)), backend("cpu", threads=1)))
        return found[-1]

    yield run
    for runner in found:
        runner.close()


def test_every_encoder_has_a_model() -> None:
    known = {spec["config"]["architectures"][0] for spec in MODELS.values()}
    assert set(ENCODERS) - known == {"SmolVLMForConditionalGeneration"}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_are_those_of_transformers(name: str, made: Make, running: Callable[[Path], EncoderRunner]) -> None:
    runner, facts = running(made(name)), np.load(FACTS)
    for k, tile in enumerate(tiles(name)):
        got, want = runner._run(tile).values, facts[f"{name}.{k}"]
        assert got.shape == want.shape
        assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5
        assert np.abs(got - want).max() < 1e-3 * np.abs(want).max()


@pytest.mark.parametrize("type", ["f16", "bf16", "q8_0"])
def test_types_of_matrices(type: str, made: Make, running: Callable[[Path], EncoderRunner]) -> None:
    runner, want = running(made("gemma3", type)), np.load(FACTS)["gemma3.0"]
    got = runner._run(tiles("gemma3")[0]).values
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-3


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"llava", "llava_next", "qwen3vl"}))
def test_llama_cpp_reads_the_same(
    name: str, made: Make, running: Callable[[Path], EncoderRunner], golden: Callable[[str], Path]
) -> None:
    """LLaVA's are left out: llama.cpp has the class token behind the patches, and its row in the first one's place.

    Qwen3-VL's is, too: it would need a text model with DeepStack.
    """
    from llama_vision import finite, rows_of

    tile = tiles(name)[0]
    wanted = finite(lambda: rows_of(golden("stories260K.gguf"), made(name), tile, 64))
    parts = running(made(name)).encode(read_picture(tile)).parts
    for got, want in zip([part.values for part in parts if isinstance(part, Rows)], wanted, strict=True):
        assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = folder(tmp_path / "tiny", "llava")
    result = CliRunner().invoke(cli, ["convert", str(source), "--mmproj", "-q"])
    assert result.exit_code == 0 and result.stdout.strip() == "mmproj-tiny-F32.gguf"
    metadata = open_model(tmp_path / "mmproj-tiny-F32.gguf").metadata
    assert metadata["general.type"] == "mmproj" and metadata["clip.vision.class_token_first"] is True


@pytest.mark.parametrize(
    ("name", "file", "change", "kind", "message"),
    [
        ("llava", "config.json", {"vision_config": None}, UnsupportedModel, "no vision_config"),
        ("llava", "config.json", {"architectures": ["Nobody"]}, UnsupportedModel, "Nobody"),
        ("llava", "config.json", {"vision_feature_layer": -1}, UnsupportedModel, "layer -1"),
        ("llava", "preprocessor_config.json", {"image_mean": [0.5]}, ModelFileError, "image_mean"),
        ("pixtral", "tokenizer.json", {"added_tokens": []}, ModelFileError, "IMG_BREAK"),
    ],
)
def test_what_cannot_be_converted(
    name: str, file: str, change: dict[str, object], kind: type[LlaminaError], message: str, tmp_path: Path
) -> None:
    source = folder(tmp_path / "tiny", name)
    path = source / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(kind, match=message):
        convert(source, tmp_path / "out.gguf", mmproj=True)
    assert not (tmp_path / "out.gguf").exists()
