"""Tiny models of `transformers`, converted: our logits and llama.cpp's are those that `transformers` computed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from convert_folders import HERE, MODELS, TOKENS, bits, folder, save, weights

import llamina
from llamina.convert import FILE_TYPES, convert, encoders
from llamina.convert.families import FAMILIES
from llamina.errors import LlaminaError
from llamina.gguf import GGUF
from llamina.quant import decode

Make = Callable[..., Path]
F32 = npt.NDArray[np.float32]
ENCODERS = {"bert", "roberta", "eurobert", "modern-bert", "gemma-embedding"}
RANKERS = {"modern-bert-ranker"}
# llama.cpp looks for the norms of queries and keys in models of 64 layers and more only. Of Gemma 3n it knows two
# sizes: 20 layers have keys and values, and gates are cut off in 10.
UNKNOWN_TO_LLAMA_CPP = {"command-r-plus", "gemma3n"}
# GGUF's GELU is the one with a hyperbolic tangent, and these were trained with the exact one; gpt-oss' YaRN is not
# rounded to whole dimensions, as GGUF's is; llama.cpp, and we, take a sample's deviation where Gemma 3n cuts off gates.
EXACT_GELU = {"bert", "roberta"}
APPROXIMATE = {"falcon", "gptneox", "bert", "gpt-oss", "gemma3n"}


@pytest.fixture(scope="session")
def truth() -> dict[str, F32]:
    return dict(np.load(HERE / "logits.npz"))


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The file that a stored model becomes."""
    top = tmp_path_factory.mktemp("convert")

    def find(name: str) -> Path:
        path = top / f"{name}.gguf"
        if not path.exists():
            convert(folder(top / name / "tiny", name), path, type="f32")
        return path

    return find


def nmse(got: F32, want: F32) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


def test_every_family_has_a_model() -> None:
    made = {spec["config"]["architectures"][0] for spec in MODELS.values()}
    same = {"LlamaModel", "Qwen2Model", "BertForMaskedLM", "XLMRobertaModel", "EuroBertForMaskedLM"}
    same |= {"ModernBertForMaskedLM", "Gemma3nForConditionalGeneration", "Gemma4ForConditionalGeneration"}
    assert set(FAMILIES) - made == same | set(encoders.ENCODERS)  # which test_convert_seeing.py is about


@pytest.mark.parametrize("name", sorted(set(MODELS) - ENCODERS - RANKERS))
def test_logits_are_those_of_transformers(name: str, make: Make, truth: dict[str, F32]) -> None:
    path = make(name)
    architecture = GGUF.open(path).metadata["general.architecture"]
    with llamina.load(path, kv_type="f32", context=256, threads=1) as engine:
        assert nmse(engine.logits(TOKENS), truth[name]) < (1e-6 if architecture in APPROXIMATE else 1e-10)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_hidden_states_are_those_of_transformers(name: str, make: Make, truth: dict[str, F32]) -> None:
    with llamina.load(make(name), kv_type="f32", context=256, threads=1) as engine:
        assert nmse(engine.hidden(TOKENS), truth[name]) < (1e-6 if name in EXACT_GELU else 1e-10)


@pytest.mark.parametrize("name", sorted(RANKERS))
def test_scores_are_those_of_transformers(name: str, make: Make, truth: dict[str, F32]) -> None:
    with llamina.load(make(name), kv_type="f32", context=256, threads=1) as engine:
        assert engine.pooling == "rank"
        assert nmse(engine.embed(TOKENS)[0], truth[name]) < 1e-5  # GELU twice: in the layers and in the head


def test_encoders_as_their_authors_publish_them(tmp_path: Path) -> None:
    """ModernBERT's bases and layers under their older names; the head that guesses words is left out."""
    new, old = folder(tmp_path / "new" / "m", "modern-bert"), folder(tmp_path / "old" / "m", "modern-bert")
    config: dict[str, Any] = json.loads((old / "config.json").read_text())
    del config["layer_types"], config["rope_parameters"]
    config |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    (old / "config.json").write_text(json.dumps(config | {"architectures": ["ModernBertForMaskedLM"]}))
    tensors = {f"model.{name}": x for name, x in weights(MODELS["modern-bert"]).items()}
    tensors |= {name: ("F32", np.ones(64, np.float32)) for name in ("head.norm.weight", "decoder.bias")}
    save(old / "model.safetensors", tensors)
    files = [GGUF.open(convert(path, path / "out.gguf").path) for path in (new, old)]
    assert [list(file.metadata["modern-bert.attention.sliding_window_pattern"]) for file in files[:1]] == [[0, 1, 1]]
    assert files[1].metadata["modern-bert.attention.sliding_window_pattern"] == 3
    assert files[0].tensors.keys() == files[1].tensors.keys()
    for key in ("rope.freq_base", "rope.freq_base_swa", "attention.sliding_window"):
        assert files[0].metadata[f"modern-bert.{key}"] == files[1].metadata[f"modern-bert.{key}"]


def test_matrices_behind_the_pooling(tmp_path: Path, truth: dict[str, F32]) -> None:
    """EmbeddingGemma as sentence-transformers has it: the mean, then two matrices. Others lose them, with a note."""
    random = np.random.default_rng(1)
    inner, outer = (random.standard_normal(shape, np.float32) for shape in ((96, 64), (64, 96)))
    for name in ("gemma-embedding", "bert"):
        path = folder(tmp_path / name / "m", name)
        kinds = {"0": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Dense": "Dense"}
        listed = [{"path": key, "type": f"sentence_transformers.models.{kind}"} for key, kind in kinds.items()]
        (path / "modules.json").write_text(json.dumps(listed))
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        for key, matrix in (("2_Dense", inner), ("3_Dense", outer)):
            (path / key).mkdir()
            (path / key / "config.json").write_text(json.dumps({"activation_function": "torch.nn.Identity"}))
            save(path / key / "model.safetensors", {"linear.weight": ("F32", matrix)})
    made = convert(tmp_path / "gemma-embedding" / "m", tmp_path / "a.gguf", type="f32")
    with llamina.load(made.path, kv_type="f32", context=256, threads=1) as engine:
        got = engine.embed(TOKENS, normalize=False)[0]
    assert nmse(got, outer @ (inner @ truth["gemma-embedding"].mean(0))) < 1e-10
    plain = convert(tmp_path / "bert" / "m", tmp_path / "b.gguf", type="f32")
    assert "2 matrices behind the pooling are left out: bert in GGUF has none" in plain.notes
    config = tmp_path / "gemma-embedding" / "m" / "2_Dense" / "config.json"
    config.write_text(json.dumps({"activation_function": "torch.nn.modules.activation.Tanh"}))
    with pytest.raises(LlaminaError, match="2_Dense has a bias or the activation Tanh"):
        convert(tmp_path / "gemma-embedding" / "m", tmp_path / "c.gguf")


@pytest.mark.parametrize("name", sorted(set(MODELS) - UNKNOWN_TO_LLAMA_CPP - RANKERS))
def test_llama_cpp_reads_the_same(name: str, make: Make, truth: dict[str, F32]) -> None:
    from convert_peer import Peer

    peer = Peer(make(name))
    got = peer.hidden(TOKENS) if name in ENCODERS else peer.logits(TOKENS)
    peer.close()
    assert nmse(got, truth[name]) < 1e-5  # its cache of keys and values has 16 bits


@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma3", "falcon", "mamba2"])
def test_the_same_greedy_tokens(name: str, make: Make) -> None:
    from convert_peer import Peer

    with llamina.load(make(name), context=256, threads=1) as engine:
        ours = engine.generate(TOKENS, max_tokens=6, temperature=0, ignore_eos=True).tokens
    peer = Peer(make(name))
    rows = peer.logits([*TOKENS, *ours])
    peer.close()
    for token, row in zip(ours, rows[len(TOKENS) - 1 :], strict=False):
        assert row[token] > row.max() - 0.02 * row.std(), "but for a close call"


@pytest.mark.parametrize(("name", "kind"), [("gemma4-shared", "Gemma4"), ("gemma3n", "Gemma3n")])
def test_the_text_of_a_gemma_that_sees(name: str, kind: str, tmp_path: Path) -> None:
    """Its own config inside another, its tensors under a further prefix, beside those of encoders."""
    plain = convert(folder(tmp_path / "a" / "m", name), tmp_path / "a.gguf")
    path, spec = folder(tmp_path / "b" / "m", name), MODELS[name]
    outer = {"architectures": [f"{kind}ForConditionalGeneration"], "model_type": kind.lower()}
    (path / "config.json").write_text(json.dumps(outer | {"text_config": spec["config"]}))
    tensors = {f"model.language_model.{k.removeprefix('model.')}": v for k, v in weights(spec).items()}
    other = ("F32", np.ones(3, np.float32))
    others = dict.fromkeys(("model.vision_tower.a", "model.embed_vision.b", "model.embed_audio.c"), other)
    save(path / "model.safetensors", tensors | others)
    whole = convert(path, tmp_path / "b.gguf")
    assert whole.notes == (*plain.notes, "3 tensors of vision or audio are left out: GGUF keeps the text model")
    assert whole.path.read_bytes() == plain.path.read_bytes()


def test_shards_change_nothing(tmp_path: Path) -> None:
    whole = convert(folder(tmp_path / "a" / "m", "llama"), tmp_path / "a.gguf")
    parts = convert(folder(tmp_path / "b" / "m", "llama", shards=3), tmp_path / "b.gguf")
    assert whole.path.read_bytes() == parts.path.read_bytes()


def test_matrices_stay_as_they_are_stored(tmp_path: Path) -> None:
    made = convert(folder(tmp_path / "m", "llama-bf16"), tmp_path / "a.gguf")
    assert (made.type, made.notes) == ("BF16", ())
    stored = weights(MODELS["llama-bf16"])["model.layers.1.mlp.up_proj.weight"][1]
    tensors = GGUF.open(made.path).tensors
    assert tensors["blk.1.ffn_up.weight"].data.tobytes() == stored.tobytes()
    assert tensors["blk.1.ffn_norm.weight"].type.name == "F32"


@pytest.mark.parametrize("kind", [name.lower() for name in FILE_TYPES])
def test_types(kind: str, tmp_path: Path, truth: dict[str, F32]) -> None:
    made = convert(folder(tmp_path / "m", "qwen3"), tmp_path / "a.gguf", type=kind)
    file = GGUF.open(made.path)
    assert file.metadata["general.file_type"] == FILE_TYPES[kind.upper()]
    assert file.tensors["blk.0.attn_q.weight"].type.name == made.type == kind.upper()
    assert made.bytes == made.path.stat().st_size and made.tensors == len(file.tensors)
    with llamina.load(made.path, context=64, threads=1) as engine:
        assert nmse(engine.logits(TOKENS), truth["qwen3"]) < 1e-2


def test_rows_that_are_not_whole_blocks(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "llama")
    spec = json.loads(json.dumps(MODELS["llama"]))
    spec["tensors"]["model.layers.0.mlp.down_proj.weight"] = [64, 40]
    save(path / "model.safetensors", weights(spec))
    made = convert(path, tmp_path / "a.gguf", type="q8_0")
    assert GGUF.open(made.path).tensors["blk.0.ffn_down.weight"].type.name == "F16"
    assert "blk.0.ffn_down.weight" in made.notes[0]


def test_values_too_large_for_f16(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "llama")
    tensors = weights(MODELS["llama"])
    tensors["lm_head.weight"][1][3, 4] = 1e5
    save(path / "model.safetensors", tensors)
    with pytest.raises(LlaminaError, match=r"output\.weight holds 100000, which is too large for F16"):
        convert(path, tmp_path / "a.gguf", type="f16")
    assert list(tmp_path.iterdir()) == [path]


def test_the_spellings_of_older_versions(tmp_path: Path) -> None:
    """rope_theta beside rope_scaling, whose type is called `type`; nothing about the head or the ties."""
    new, old = folder(tmp_path / "new" / "m", "llama"), folder(tmp_path / "old" / "m", "llama")
    config: dict[str, Any] = json.loads((old / "config.json").read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = scaling | {"type": scaling.pop("rope_type")}
    (old / "config.json").write_text(json.dumps(config))
    made = [convert(path, path / "out.gguf").path.read_bytes() for path in (new, old)]
    assert made[0] == made[1]


def test_layers_of_lfm2_by_number(tmp_path: Path) -> None:
    """As its authors publish it: which layers attend, not what each one is."""
    new, old = folder(tmp_path / "new" / "m", "lfm2"), folder(tmp_path / "old" / "m", "lfm2")
    config: dict[str, Any] = json.loads((old / "config.json").read_text())
    config["full_attn_idxs"] = [i for i, kind in enumerate(config.pop("layer_types")) if kind == "full_attention"]
    (old / "config.json").write_text(json.dumps(config))
    made = [convert(path, path / "out.gguf").path.read_bytes() for path in (new, old)]
    assert made[0] == made[1] and config["full_attn_idxs"]


def test_the_text_model_of_one_that_sees(tmp_path: Path) -> None:
    plain, seeing = folder(tmp_path / "a" / "m", "gemma3"), folder(tmp_path / "b" / "m", "gemma3")
    config = json.loads((seeing / "config.json").read_text())
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": config, "vision_config": {}}
    (seeing / "config.json").write_text(json.dumps(whole))
    tensors = {name.replace("model.", "language_model.model.", 1): x for name, x in weights(MODELS["gemma3"]).items()}
    tensors["vision_tower.embeddings.weight"] = ("F32", np.zeros((2, 2), np.float32))
    save(seeing / "model.safetensors", tensors)
    made = [convert(path, path / "out.gguf") for path in (plain, seeing)]
    assert made[0].path.read_bytes() == made[1].path.read_bytes()
    assert made[1].notes == ("1 tensors of vision or audio are left out: GGUF keeps the text model",)


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    single, fused = folder(tmp_path / "a" / "m", "qwen3moe"), folder(tmp_path / "b" / "m", "qwen3moe")
    tensors = weights(MODELS["qwen3moe"])
    for layer in range(2):
        root = f"model.layers.{layer}.mlp.experts"
        parts = {
            kind: np.stack([tensors.pop(f"{root}.{i}.{kind}_proj.weight")[1] for i in range(4)])
            for kind in ("gate", "up", "down")
        }
        tensors[f"{root}.gate_up_proj"] = ("F32", np.concatenate([parts["gate"], parts["up"]], axis=1))
        tensors[f"{root}.down_proj"] = ("F32", parts["down"])
    save(fused / "model.safetensors", tensors)
    made = [convert(path, path / "out.gguf").path.read_bytes() for path in (single, fused)]
    assert made[0] == made[1]


def test_eight_bit_floats_with_scales(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "deepseek3")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [48, 32]}
    (path / "config.json").write_text(json.dumps(config))
    tensors = weights(MODELS["deepseek3"])
    name = "model.layers.0.mlp.up_proj.weight"  # [96, 64]
    coded = np.random.default_rng(1).integers(0, 127, (96, 64), np.uint8)
    scales = np.array([[0.5, 2], [4, 1]], np.float32)
    tensors |= {name: ("F8_E4M3", coded), f"{name}_scale_inv": ("F32", scales)}
    save(path / "model.safetensors", tensors)
    made = convert(path, tmp_path / "a.gguf", type="f32")
    got = GGUF.open(made.path).tensors["blk.0.ffn_up.weight"].data.view(np.float32).reshape(96, 64)
    exponent, mantissa = (coded >> 3).astype(int), (coded & 7) / 8
    plain = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7))
    assert np.array_equal(got, plain * np.kron(scales, np.ones((48, 32))))


def test_blocks_of_four_bits(tmp_path: Path) -> None:
    """gpt-oss as it is published: experts in MXFP4, two neighbours in a byte."""
    path = folder(tmp_path / "m", "gpt-oss")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    tensors = weights(MODELS["gpt-oss"])
    rng = np.random.default_rng(1)
    shapes = {"gate_up_proj": (4, 192, 2), "down_proj": (4, 64, 3)}  # experts, rows, blocks of 32
    packed: dict[str, tuple[Any, Any]] = {}
    for layer in range(2):
        for name, shape in shapes.items():
            key = f"model.layers.{layer}.mlp.experts.{name}"
            del tensors[key]
            packed[key] = rng.integers(0, 256, (*shape, 16), np.uint8), rng.integers(120, 132, shape, np.uint8)
            tensors |= {f"{key}_{part}": ("U8", x) for part, x in zip(("blocks", "scales"), packed[key], strict=True)}
    save(path / "model.safetensors", tensors)
    made = convert(path, tmp_path / "a.gguf", type="q8_0")
    file = GGUF.open(made.path)
    for name, key, rows in (
        ("ffn_gate_exps", "gate_up_proj", slice(0, None, 2)),
        ("ffn_up_exps", "gate_up_proj", slice(1, None, 2)),
        ("ffn_down_exps", "down_proj", slice(None)),
    ):
        tensor = file.tensors[f"blk.1.{name}.weight"]
        assert tensor.type.name == "MXFP4"
        blocks, scales = packed[f"model.layers.1.mlp.experts.{key}"]
        levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        codes = np.stack((blocks & 15, blocks >> 4), axis=-1).reshape(*blocks.shape[:3], 32)
        values = np.where(codes < 8, 1, -1) * levels[codes & 7] * 2.0 ** (scales[..., None].astype(int) - 127)
        expected = values.reshape(*tensor.shape[:1], -1, tensor.shape[2])[:, rows]
        assert np.array_equal(decode(tensor.data, tensor.type).reshape(tensor.shape), expected)
    few = convert(path, tmp_path / "b.gguf", type="q4_k_m")
    assert "6 matrices stay MXFP4, as they are published (blk.0.ffn_" in few.notes[0]
    again = GGUF.open(few.path).tensors
    for name, tensor in file.tensors.items():
        assert (again[name].type.name == "MXFP4") == ("_exps.weight" in name), name
        assert tensor.type.name != "MXFP4" or np.array_equal(tensor.data, again[name].data)
    assert again["blk.0.attn_q.weight"].type.name == "Q5_0", "in place of Q4_K, which rows of 64 do not fit"


def test_bits_are_the_upper_half() -> None:
    """The writer of these tests itself."""
    assert bits(np.array([1.0, -2.5], np.float32)).tolist() == [0x3F80, 0xC020]
