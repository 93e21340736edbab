"""Tiny models that see or hear, converted: rows of tiles are those that `transformers` computed."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from seeing_folders import EVERY, FACTS, HEARING, MODELS, chat_folder, folder, tiles

from llamina import sound, vision
from llamina.backends import backend
from llamina.cli import cli
from llamina.convert import convert
from llamina.convert.encoders import ENCODERS
from llamina.convert.encoders.kinds import LEFT_OUT
from llamina.engine.runner.load import weights_of
from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.gguf import open_model
from llamina.sound import read_sound
from llamina.vision import EncoderRunner, Rows, read_picture

Make = Callable[..., Path]
Run = Callable[..., EncoderRunner]


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
def running() -> Iterator[Run]:
    found: list[EncoderRunner] = []

    def run(path: Path, hears: bool = False) -> EncoderRunner:
        file = open_model(path)
        media = sound if hears else vision
        found.append(EncoderRunner(media.build(file.metadata, weights_of(file)), backend("cpu", threads=1)))
        return found[-1]

    yield run
    for runner in found:
        runner.close()


def test_every_encoder_has_a_model() -> None:
    known = {spec["config"]["architectures"][0] for spec in MODELS.values()}
    assert set(ENCODERS) - known == {
        "SmolVLMForConditionalGeneration",
        "InternVLChatModel",
        "Qwen2_5OmniModel",
        "Qwen2_5OmniForConditionalGeneration",
    }
    assert not set(ENCODERS) & set(LEFT_OUT)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_are_those_of_transformers(name: str, made: Make, running: Run) -> None:
    facts = np.load(FACTS)
    for k, tile in enumerate(tiles(name)):
        hears = tile.dtype == np.float32
        got, want = running(made(name), hears)._run(tile).values, facts[f"{name}.{k}"]
        got = got[::EVERY] if hears else got
        assert got.shape == want.shape
        assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5
        assert np.abs(got - want).max() < 1e-3 * np.abs(want).max()


@pytest.mark.parametrize("type", ["f16", "bf16", "q8_0"])
def test_types_of_matrices(type: str, made: Make, running: Run) -> None:
    runner, want = running(made("gemma3", type)), np.load(FACTS)["gemma3.0"]
    got = runner._run(tiles("gemma3")[0]).values
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-3


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"llava", "llava_next", "qwen3vl", "qwen3vlmoe", "voxtral"}))
def test_llama_cpp_reads_the_same(name: str, made: Make, running: Run, golden: Callable[[str], Path]) -> None:
    """LLaVA's are left out: llama.cpp has the class token behind the patches, and its row in the first one's place.

    Qwen3-VL's is, too: it would need a text model with DeepStack. Voxtral's ends the process of llama.cpp.
    """
    from llama_vision import finite, rows_of

    shown = tiles(name)[-1]
    if name in HEARING:
        shown = np.sin(np.arange(40_000, dtype=np.float32) / 20) * np.float32(0.3)
    wanted = finite(lambda: rows_of(golden("stories260K.gguf"), made(name), shown, 64))
    medium = read_sound(shown) if name in HEARING else read_picture(shown)
    parts = running(made(name), name in HEARING).encode(medium).parts
    for got, want in zip([part.values for part in parts if isinstance(part, Rows)], wanted, strict=True):
        assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 1e-5


def test_internvl_as_its_authors_publish_it(made: Make, tmp_path: Path) -> None:
    """Other names, q, k and v as one matrix, the same file."""
    found = convert(chat_folder(tmp_path / "tiny", "internvl"), tmp_path / "out.gguf", type="f32", mmproj=True)
    got, want = open_model(found.path), open_model(made("internvl"))
    assert {key: str(value) for key, value in got.metadata.items()} == {key: str(x) for key, x in want.metadata.items()}
    assert got.tensors.keys() == want.tensors.keys()
    assert all(np.array_equal(got.tensors[key].data, want.tensors[key].data) for key in want.tensors)


def test_tiles_of_internvl(tmp_path: Path) -> None:
    """The processor's settings, or those in config.json."""
    for name, settings in (
        ("preprocessor_config.json", {"min_patches": 2, "max_patches": 5}),
        ("config.json", {"min_dynamic_patch": 2, "max_dynamic_patch": 5}),
    ):
        source = folder(tmp_path / name, "internvl")
        path = source / name
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))
        metadata = open_model(convert(source, tmp_path / f"{name}.gguf", mmproj=True).path).metadata
        assert [metadata[f"clip.vision.preproc_{key}_tiles"] for key in ("min", "max")] == [2, 5]


def test_convolutions_of_sounds_are_halves(made: Make) -> None:
    """llama.cpp convolves in no other type; positions and biases stay whole."""
    for type in ("f32", "bf16", "q8_0"):
        tensors = open_model(made("qwen2audio", type)).tensors
        assert tensors["a.conv1d.1.weight"].type.name == tensors["a.conv1d.2.weight"].type.name == "F16"
        assert tensors["a.position_embd.weight"].type.name == tensors["a.conv1d.1.bias"].type.name == "F32"
        assert list(tensors["a.conv1d.1.bias"].shape) == [32, 1]


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
        ("llava", "config.json", {"vision_config": None}, UnsupportedModel, "no vision_config and no audio_config"),
        ("llava", "config.json", {"architectures": ["Nobody"]}, UnsupportedModel, "Nobody"),
        ("llava", "config.json", {"vision_feature_layer": -1}, UnsupportedModel, "layer -1"),
        ("llava", "preprocessor_config.json", {"image_mean": [0.5]}, ModelFileError, "image_mean"),
        ("internvl", "config.json", {"vision_feature_layer": -2}, UnsupportedModel, "layer is -2.*implies -1"),
        ("lfm2vl", "config.json", {"projector_hidden_act": "relu"}, UnsupportedModel, "act is 'relu'.*'gelu'"),
        ("voxtral", "config.json", {"projector_hidden_act": "relu"}, UnsupportedModel, "act is 'relu'.*'gelu'"),
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


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("internvl", {"image_size": [56, 70]}, r"image_size is \[56, 70\]: squares are known"),
        ("internvl", {"norm_type": "rms_norm"}, "norm_type is 'rms_norm'.*'layer_norm'"),
        ("internvl", {"use_qk_norm": True}, "queries are normed"),
        ("janus", {"depth": 3}, "depth is 3.*implies 2"),
        ("llama4", {"rope_theta": 1}, "rope_theta is 1.*implies 10000"),
        ("lfm2vl", {"patch_size": 16}, "patches of 16 x 16"),
        ("voxtral", {"intermediate_size": 100}, "rows of 100 are no whole number of frames of 32"),
    ],
)
def test_encoders_that_gguf_cannot_express(name: str, change: dict[str, object], message: str, tmp_path: Path) -> None:
    source = folder(tmp_path / "tiny", name)
    config = json.loads((source / "config.json").read_text())
    config["audio_config" if name in HEARING else "vision_config"] |= change
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(LlaminaError, match=message):
        convert(source, tmp_path / "out.gguf", mmproj=True)


ODD = [None, "x", -1, 0, 1.5, 10**10, True, [], {}, [1, "a"], {"a": 1}, float("inf")]
NUMBERS = ("downsample_ratio", "image_grid_pinpoints", "scale_factor", "spatial_merge_size", "thinker_config")


@pytest.mark.parametrize(
    "name", ["glm4v", "internvl", "janus", "lfm2vl", "llama4", "llava", "qwen25omni", "qwen3vl", "voxtral"]
)
def test_odd_settings_are_refused_or_taken(name: str, tmp_path: Path) -> None:
    """Whatever config.json says of an encoder, nothing but our own errors comes of it."""
    source = folder(tmp_path / "tiny", name)
    for part in ("", "vision_config", "audio_config"):
        known = MODELS[name]["config"].get(part, {}) if part else dict.fromkeys(NUMBERS)
        for i, key in enumerate(known):
            for odd in ODD[i % 3 :: 3]:
                config = json.loads(json.dumps(MODELS[name]["config"]))
                (config[part] if part else config)[key] = odd
                (source / "config.json").write_text(json.dumps(config))
                with suppress(LlaminaError):
                    convert(source, tmp_path / "out.gguf", mmproj=True, overwrite=True)


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_classes_that_are_left_out_say_why(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
    with pytest.raises(UnsupportedModel, match=f"config.json names {name}: {re.escape(LEFT_OUT[name])}"):
        convert(tmp_path, tmp_path / "out.gguf", mmproj=True)
