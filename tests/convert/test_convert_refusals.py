"""What cannot be converted says so before a byte is written; what breaks off leaves nothing; memory stays small."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_folders import MODELS, folder, save, weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamina.convert import convert
from llamina.convert.safetensors import tensors_of
from llamina.errors import LlaminaError, ModelFileError, ModelNotFound, RequestError, UnsupportedModel

Edit = Callable[[dict[str, Any]], object]


def configured(path: Path, name: str, edit: Edit) -> Path:
    """A model's folder with its config.json edited."""
    made = folder(path / "m", name)
    config = json.loads((made / "config.json").read_text())
    edit(config)
    (made / "config.json").write_text(json.dumps(config))
    return made


@pytest.mark.parametrize(
    ("name", "edit", "kind", "message"),
    [
        (
            "llama",
            lambda c: c.update(architectures=["LlamaForDreaming"]),
            UnsupportedModel,
            "LlamaForDreaming.*LlamaForC",
        ),
        ("llama", lambda c: c.pop("architectures"), UnsupportedModel, "config.json names llama, which"),
        ("llama", lambda c: c.update(hidden_act="relu2"), UnsupportedModel, "hidden_act is 'relu2', but llama in GGUF"),
        ("llama", lambda c: c.update(num_attention_heads=0), ModelFileError, "num_attention_heads is 0"),
        ("llama", lambda c: c.update(num_attention_heads=7), ModelFileError, "do not divide by 14"),
        ("llama", lambda c: c.update(num_hidden_layers="two"), ModelFileError, "num_hidden_layers is 'two'"),
        ("llama", lambda c: c.update(num_hidden_layers=3), ModelFileError, "no tensors of layer 2"),
        ("llama", lambda c: c["rope_parameters"].update(rope_type="spiral"), UnsupportedModel, "rope_type 'spiral'"),
        ("llama", lambda c: c["rope_parameters"].update(factor=-1), ModelFileError, "factor of RoPE is -1"),
        ("llama", lambda c: c.update(quantization_config={"quant_method": "gptq"}), UnsupportedModel, "by 'gptq'"),
        (
            "phi3-longrope",
            lambda c: c["rope_parameters"].update(long_factor=[1.0]),
            ModelFileError,
            "long_factor has shape",
        ),
        ("gemma2", lambda c: c.update(query_pre_attn_scalar=7), UnsupportedModel, "query_pre_attn_scalar is 7"),
        ("gemma3", lambda c: c["layer_types"].pop(), ModelFileError, "layer_types has 6 entries for 7 layers"),
        ("qwen3moe", lambda c: c.update(norm_topk_prob=False), UnsupportedModel, "norm_topk_prob is False"),
        (
            "qwen3moe",
            lambda c: c.update(num_local_experts=5),
            ModelFileError,
            "made of 4 tensors, where 5 are expected",
        ),
        ("deepseek3", lambda c: c.update(v_head_dim=8), ModelFileError, "kv_b_proj has 128 rows"),
        ("exaone4", lambda c: c.update(sliding_window=8), UnsupportedModel, "windows with 64 layers"),
        ("lfm2", lambda c: c["layer_types"].pop(), ModelFileError, "one entry for each of 3 layers"),
        ("llama4", lambda c: c.update(moe_layers=[0]), UnsupportedModel, r"moe_layers is \[0\], and llama4 in GGUF"),
        ("llama4", lambda c: c.update(use_qk_norm=False), UnsupportedModel, "use_qk_norm is False"),
        ("falcon", lambda c: c.update(alibi=True), UnsupportedModel, "alibi is True"),
    ],
)
def test_settings_that_have_no_place(
    name: str, edit: Edit, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        convert(configured(tmp_path, name, edit), tmp_path / "a.gguf")
    assert not (tmp_path / "a.gguf").exists()


ODD = st.sampled_from([None, "x", -1, 0, 1.5, 10**10, True, [], {}, [1, "a"], {"a": 1}])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["llama", "phi3-longrope", "deepseek3-yarn", "gemma3", "lfm2"]), data=st.data(), odd=ODD)
def test_odd_settings_are_refused_or_taken(name: str, data: st.DataObject, odd: Any, tmp_path: Path) -> None:
    """Whatever a config.json says, nothing but our own errors comes of it."""
    config = json.loads(json.dumps(MODELS[name]["config"]))
    key = data.draw(st.sampled_from(sorted(config)))
    inner = config[key] if isinstance(config[key], dict) and data.draw(st.booleans()) else config
    inner[key if inner is config else data.draw(st.sampled_from(sorted(inner)))] = odd
    path = tmp_path / name
    if not path.exists():
        folder(path, name)
    (path / "config.json").write_text(json.dumps(config))
    with suppress(LlaminaError):
        convert(path, tmp_path / "a.gguf", overwrite=True)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.update({"model.layers.0.mystery.weight": t["model.norm.weight"]}), "mystery.weight has no name"),
        (lambda t: t.pop("model.embed_tokens.weight"), "no token embeddings"),
        (lambda t: t.update({"language_model.lm_head.weight": t["lm_head.weight"]}), "two tensors"),
        (lambda t: t.update({"model.norm.weight": ("I64", np.zeros(64, np.int64))}), "is I64, which"),
    ],
)
def test_tensors_that_have_no_place(edit: Edit, message: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "llama")
    tensors = weights(MODELS["llama"])
    edit(tensors)
    save(path / "model.safetensors", tensors)
    with pytest.raises(LlaminaError, match=message):
        convert(path, tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("llama", "num_hidden_layers", "no tensors of layer"),
        ("mixtral", "num_local_experts", "ffn_.*_exps.* is made of"),
    ],
)
def test_huge_counts_take_no_memory(name: str, key: str, message: str, tmp_path: Path) -> None:
    """What config.json asks for is not made before it is known to be there."""
    path = folder(tmp_path / name, name)
    (path / "config.json").write_text(json.dumps(MODELS[name]["config"] | {key: 2**31 - 1}))
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=message):
        convert(path, tmp_path / "a.gguf")
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="is not a folder"):
        convert(tmp_path / "nothing")
    with pytest.raises(ModelNotFound, match=r"has no config\.json"):
        convert(tmp_path)
    path = folder(tmp_path / "m", "llama")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match="pickle files"):
        convert(path)
    (path / "pytorch_model.bin").unlink()
    with pytest.raises(ModelFileError, match=r"has no model\*\.safetensors"):
        convert(path)


def test_a_missing_shard(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "llama", shards=3)
    (path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"lacks model-00002-of-00003\.safetensors"):
        convert(path)


def test_an_index_stays_in_its_folder(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", "llama")
    (tmp_path / "elsewhere.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(ModelFileError, match=r"lacks elsewhere\.safetensors"):
        convert(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 3000), bytes_=st.binary(min_size=1, max_size=8), cut=st.integers(0, 4000))
def test_damaged_files_are_refused_or_read(place: int, bytes_: bytes, cut: int, tmp_path: Path) -> None:
    """No header makes the reader do anything but read within the file, or refuse."""
    x = np.arange(64, dtype=np.float32)
    save(tmp_path / "model.safetensors", {f"t{i}": ("F32", x.reshape(8, 8)) for i in range(8)})
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[place : place + len(bytes_)] = bytes_
    (tmp_path / "model.safetensors").write_bytes(data[: len(data) - cut])
    with suppress(LlaminaError):
        for tensor in tensors_of(tmp_path).values():
            tensor.load()


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path, out = folder(tmp_path / "m", "llama"), tmp_path / "a.gguf"
    out.write_bytes(b"precious")
    with pytest.raises(RequestError, match="exists: choose another name"):
        convert(path, out)
    with pytest.raises(RequestError, match="type is 'q9': must be one of"):
        convert(path, out, type="q9")
    assert out.read_bytes() == b"precious"
    assert convert(path, out, overwrite=True).bytes == out.stat().st_size > 1000


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    path, out = folder(tmp_path / "m", "llama"), tmp_path / "a.gguf"
    out.write_bytes(b"precious")
    seen: list[int] = []

    def interrupt(what: str, done: int, total: int) -> None:
        seen.append(done)
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(path, out, overwrite=True, progress=interrupt)
    assert len(seen) > 3 and sorted(seen) == seen
    assert sorted(tmp_path.iterdir()) == [out, path] and out.read_bytes() == b"precious"


def test_memory_holds_a_tensor_at_a_time(tmp_path: Path) -> None:
    """128 MB of experts in matrices of 4 MB, which become stacks of 32 MB."""
    path = folder(tmp_path / "m", "mixtral")
    spec = json.loads(json.dumps(MODELS["mixtral"]))
    config = spec["config"] | {"num_local_experts": 8, "num_hidden_layers": 1}
    (path / "config.json").write_text(json.dumps(config))
    tensors = {name: x for name, x in weights(spec).items() if ".layers.1." not in name and "experts" not in name}
    one = np.zeros((1024, 1024), np.float32)
    experts = {f"w{i}": ("F32", one) for i in (1, 2, 3)}
    root = "model.layers.0.block_sparse_moe.experts"
    tensors |= {f"{root}.{i}.{name}.weight": x for i in range(8) for name, x in experts.items()}
    save(path / "model.safetensors", tensors)
    size = (path / "model.safetensors").stat().st_size
    del tensors
    tracemalloc.start()
    try:
        for kind in ("f32", "q8_0"):
            made = convert(path, tmp_path / f"{kind}.gguf", type=kind)
            assert tracemalloc.get_traced_memory()[1] < 24 << 20 < size // 4
            assert made.tensors > 10
    finally:
        tracemalloc.stop()
