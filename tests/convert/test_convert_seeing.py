"""Text models inside models that see or hear, converted: what their own classes would have become."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from convert_folders import TOKENS, save
from seeing_folders import HEARING, MODELS, text_folder, text_settings, tiles, whole_folder

import llamina
from llamina.convert import convert
from llamina.convert.safetensors import tensors_of
from llamina.errors import ModelFileError, UnsupportedModel
from llamina.gguf import open_model

NEW, OLD = ("model.language_model.", "lm_head.weight"), ("language_model.model.", "language_model.lm_head.weight")
CASES = [
    ("llava", *OLD, "LlamaForCausalLM"),
    ("llava", *NEW, "LlamaForCausalLM"),
    ("llava_next", *OLD, "LlamaForCausalLM"),
    ("pixtral", *OLD, "LlamaForCausalLM"),
    ("mistral3", *NEW, "MistralForCausalLM"),
    ("idefics3", "model.text_model.", "lm_head.weight", "LlamaForCausalLM"),
    ("gemma3", *OLD, "Gemma3ForCausalLM"),
    ("qwen2vl", "model.", "lm_head.weight", "Qwen2ForCausalLM"),
    ("qwen25vl", *NEW, "Qwen2ForCausalLM"),
    ("qwen3vl", *NEW, "Qwen3ForCausalLM"),
    ("qwen3vlmoe", *NEW, "Qwen3MoeForCausalLM"),
    ("qwen25omni", "model.", "lm_head.weight", "Qwen2ForCausalLM"),
    ("internvl", *OLD, "Qwen2ForCausalLM"),
    ("lfm2vl", *NEW, "Lfm2ForCausalLM"),
    ("janus", *NEW, "LlamaForCausalLM"),
    ("llama4", *OLD, "Llama4ForCausalLM"),
    ("glm4v", *NEW, "Glm4ForCausalLM"),
    ("qwen2audio", *OLD, "Qwen2ForCausalLM"),
    ("voxtral", *OLD, "LlamaForCausalLM"),
]
NAMES = {name: (prefix, head) for name, prefix, head, _ in CASES}
TURNED = re.compile(r"blk\.\d+\.attn_[qk]\.")  # of GLM-4V: RoPE on halves of a head, not on neighbours


def test_every_model_is_there() -> None:
    assert {case[0] for case in CASES} == set(MODELS)


@pytest.mark.parametrize(("name", "prefix", "head", "architecture"), CASES)
def test_the_text_model_is_that_of_its_own_class(
    name: str, prefix: str, head: str, architecture: str, tmp_path: Path
) -> None:
    whole = convert(whole_folder(tmp_path / "whole", name, prefix, head), tmp_path / "whole.gguf")
    alone = convert(text_folder(tmp_path / "alone", name, architecture), tmp_path / "alone.gguf")
    assert "of vision or audio" in whole.notes[0]
    got, want = open_model(whole.path), open_model(alone.path)
    assert got.tensors.keys() == want.tensors.keys()
    for key in want.tensors:
        turned = name == "glm4v" and TURNED.match(key)
        assert np.array_equal(got.tensors[key].data, want.tensors[key].data) is not bool(turned), key
    for key, value in want.metadata.items():
        key = key.replace(f"{want.metadata['general.architecture']}.", f"{got.metadata['general.architecture']}.")
        assert key.startswith("general.") or np.array_equal(got.metadata[key], value), key
    if sections := text_settings(name).get("rope_parameters", {}).get("mrope_section"):
        assert list(got.metadata[f"{got.metadata['general.architecture']}.rope.dimension_sections"]) == [*sections, 0]
        logits = []
        for path in (whole.path, alone.path):
            with llamina.load(path, kv_type="f32", threads=1) as engine:
                logits.append(engine.logits(TOKENS))
        assert np.allclose(*logits, rtol=0, atol=1e-4)  # in text, the three positions are one
        assert np.array_equal(*logits) or name == "glm4v"


@pytest.mark.parametrize("name", sorted({case[0] for case in CASES} - {"gemma3", "llava_next", "mistral3", "pixtral"}))
def test_both_halves_of_a_folder_answer(name: str, tmp_path: Path) -> None:
    source = whole_folder(tmp_path / "tiny", name, *NAMES[name])
    text, sight = (convert(source, tmp_path / f"{k}.gguf", mmproj=bool(k)).path for k in range(2))
    content: list[dict[str, object]] = [{"type": "text", "text": "a"}]
    if name not in HEARING:
        content.append({"type": "image", "image": tiles(name)[-1]})
    if name in HEARING or name == "qwen25omni":
        content.append({"type": "audio", "audio": np.zeros(16000, np.float32)})
    with llamina.load(text, mmproj=sight, threads=1, context=1024) as engine:
        answer = engine.chat([{"role": "user", "content": content}], max_tokens=2, temperature=0.0)
    assert len(answer.tokens) == 2


def test_experts_stored_column_by_column(tmp_path: Path) -> None:
    """As Qwen publishes them; `transformers` writes new ones row by row."""
    files = []
    for columns in (False, True):
        source = whole_folder(tmp_path / str(columns), "qwen3vlmoe", *NEW, columns=columns)
        files.append(open_model(convert(source, tmp_path / f"{columns}.gguf").path).tensors)
    assert all(np.array_equal(files[0][key].data, files[1][key].data) for key in files[0])
    config = json.loads((source / "config.json").read_text())
    config["text_config"] |= {"hidden_size": 32}
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match=r"by config.json one side has 32|do not divide"):
        convert(source, tmp_path / "other.gguf")


def test_settings_that_leave_out_the_defaults(tmp_path: Path) -> None:
    """As llava-hf publishes them: text_config names its own class, and not what transformers assumes."""
    source = whole_folder(tmp_path / "tiny", "llava", *OLD)
    path = source / "config.json"
    config = json.loads(path.read_text())
    said = {key: value for key, value in config["text_config"].items() if key not in ("rms_norm_eps", "hidden_act")}
    said |= {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": None}
    path.write_text(json.dumps(config | {"text_config": said}))
    metadata = open_model(convert(source, tmp_path / "text.gguf").path).metadata
    assert metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-6)
    assert metadata["llama.context_length"] == 2048
    path.write_text(
        json.dumps(config | {"text_config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}})
    )
    sight = convert(source, tmp_path / "mmproj.gguf", mmproj=True)
    assert open_model(sight.path).metadata["clip.vision.projection_dim"] == 4096
    with pytest.raises(ModelFileError, match=r"config\.json belongs to another model"):
        convert(source, tmp_path / "other.gguf")


def test_settings_without_a_text_config(tmp_path: Path) -> None:
    """As Qwen publishes them: the text model's beside vision_config, and M-RoPE under its old name."""
    source = whole_folder(tmp_path / "tiny", "qwen2vl", "model.", "lm_head.weight")
    path, found = source / "config.json", []
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    old = {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    for settings in (config | {"text_config": text | {"rope_parameters": rope}}, text | config | old):
        path.write_text(json.dumps(settings))
        metadata = [
            open_model(convert(source, tmp_path / "out.gguf", mmproj=mmproj, overwrite=True).path).metadata
            for mmproj in (False, True)
        ]
        found.append(str(metadata))
    assert found[0] == found[1]
    path.write_text(json.dumps(config | text | old | {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 3]}}))
    with pytest.raises(ModelFileError, match="three numbers with the sum 8"):
        convert(source, tmp_path / "other.gguf")


def test_an_output_matrix_of_its_own(tmp_path: Path) -> None:
    """The model's own setting counts: text_config may have no more than the default of its class."""
    source = whole_folder(tmp_path / "tiny", "internvl", *OLD)
    path = source / "config.json"
    config = json.loads(path.read_text())
    for outer, inner, there in ((False, True, True), (True, False, True), (True, True, False)):
        text = config["text_config"] | {"tie_word_embeddings": inner}
        path.write_text(json.dumps(config | {"tie_word_embeddings": outer, "text_config": text}))
        tensors = open_model(convert(source, tmp_path / "out.gguf", overwrite=True).path).tensors
        assert ("output.weight" in tensors) is there


def test_an_omni_model_as_published(tmp_path: Path) -> None:
    """The part that thinks beside parts that speak, under a class and a prefix of its own."""
    alone = whole_folder(tmp_path / "alone", "qwen25omni", *NAMES["qwen25omni"])
    whole = tmp_path / "whole"
    shutil.copytree(alone, whole)
    config = json.loads((whole / "config.json").read_text())
    thinker = {key: value for key, value in config.items() if key != "architectures"}
    config = {"architectures": ["Qwen2_5OmniModel"], "thinker_config": thinker, "talker_config": {"hidden_size": 3}}
    (whole / "config.json").write_text(json.dumps(config))
    tensors = {f"thinker.{name}": x.load() for name, x in tensors_of(alone).items()}
    tensors |= {"talker.model.norm.weight": np.ones(3, np.float32), "token2wav.x": np.ones(3, np.float32)}
    save(whole / "model.safetensors", {name: ("F32", x) for name, x in tensors.items()})
    for mmproj in (False, True):
        files = []
        for source in (alone, whole):
            made = convert(source, tmp_path / f"{source.name}-{mmproj}.gguf", mmproj=mmproj)
            assert any("30 seconds" in note for note in made.notes) is mmproj
            files.append(open_model(made.path))
        got, want = files
        assert got.tensors.keys() == want.tensors.keys()
        assert all(np.array_equal(got.tensors[key].data, want.tensors[key].data) for key in want.tensors)
        assert [str(value) for key, value in got.metadata.items() if "name" not in key] == [
            str(value) for key, value in want.metadata.items() if "name" not in key
        ]


def test_settings_of_internvls_authors(tmp_path: Path) -> None:
    """The text model's are in llm_config, under a class of their own."""
    source, found = whole_folder(tmp_path / "tiny", "internvl", *OLD), []
    path = source / "config.json"
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    chat = config | {"architectures": ["InternVLChatModel"], "llm_config": text}
    for settings in (config | {"text_config": text}, chat):
        path.write_text(json.dumps(settings))
        file = open_model(convert(source, tmp_path / "out.gguf", overwrite=True).path)
        found.append((str(file.metadata), sorted(file.tensors)))
    assert found[0] == found[1]
    path.write_text(json.dumps(chat | {"llm_config": text | {"model_type": "internlm2"}}))
    with pytest.raises(UnsupportedModel, match=r"'internlm2'.*inside InternVLChatModel"):
        convert(source, tmp_path / "other.gguf")


def test_text_models_that_are_not_known(tmp_path: Path) -> None:
    source = whole_folder(tmp_path / "tiny", "llava", *OLD)
    path = source / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"text_config": config["text_config"] | {"model_type": "opt"}}))
    with pytest.raises(UnsupportedModel, match=r"'opt'.*llama, mistral, qwen2, qwen3 are known"):
        convert(source, tmp_path / "text.gguf")
    assert convert(source, tmp_path / "mmproj.gguf", mmproj=True).tensors
