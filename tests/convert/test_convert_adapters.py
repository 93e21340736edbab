"""Folders of PEFT: beside a converted model they are what the merged folder converts to, and what PEFT computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from adapter_folders import adapter, merged, modules
from convert_folders import HERE, TOKENS, folder, save, values

import llamina
from llamina.convert import convert
from llamina.errors import LlaminaError, ModelFileError, ModelNotFound, UnsupportedModel
from llamina.files import compare, export_lora
from llamina.gguf import open_model

F32 = npt.NDArray[np.float32]
NAMES = [
    "llama", "llama-biases", "mistral", "mixtral", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma3", "phi3",
    "command-r", "falcon", "falcon-new", "gpt2", "gptneox", "bloom", "stablelm", "olmo2", "starcoder2", "deepseek2",
    "mamba2", "granite",
]  # fmt: skip
ORACLE = dict(np.load(HERE / "adapter_logits.npz"))


def nmse(got: F32, want: F32) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


def logits(path: Path, lora: Path | None = None) -> F32:
    with llamina.load(path, backend="reference", kv_type="f32") as engine:
        return engine.logits(TOKENS, {engine.load_adapter(lora): 1.0} if lora else None)


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_the_merged_model(name: str, tmp_path: Path) -> None:
    rslora = name == "qwen3"
    base, whole = tmp_path / "base.gguf", tmp_path / "merged.gguf"
    convert(folder(tmp_path / "base", name), base, type="f32")
    convert(merged(tmp_path / "merged", name, rslora), whole, type="f32")
    got = logits(base, adapter(tmp_path / "lora", name, rslora))
    assert nmse(got, logits(whole)) < 1e-8
    assert nmse(got, logits(base)) > 1e-2, "an adapter that does little proves little"


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen3", "gpt2", "falcon", "deepseek2"])
def test_an_exported_adapter_is_the_merged_model(name: str, tmp_path: Path) -> None:
    base, whole, out = (tmp_path / f"{part}.gguf" for part in ("base", "merged", "out"))
    convert(folder(tmp_path / "base", name), base, type="f32")
    convert(merged(tmp_path / "merged", name), whole, type="f32")
    made = export_lora(base, [adapter(tmp_path / "lora", name)], out)
    with open_model(whole) as one, open_model(out) as other:
        found = compare(one, other, errors=True)
        assert not (found.types or found.shapes or found.tensors_added or found.tensors_removed)
        assert len(made.merged) > 3 and all(error.relative < 1e-6 for error in found.errors)


@pytest.mark.parametrize("name", sorted(ORACLE))
def test_logits_are_those_of_peft(name: str, tmp_path: Path) -> None:
    base = tmp_path / "base.gguf"
    convert(folder(tmp_path / "base", name), base, type="f32")
    assert (
        nmse(logits(base, adapter(tmp_path / "lora", name)), ORACLE[name]) < 1e-7
    )  # GELU by tanh, where PEFT has the exact one, costs 3e-8


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("llama")
    convert(folder(top / "base", "llama"), top / "base.gguf", type="f32")
    return top / "base.gguf"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"peft_type": "LOHA"}, UnsupportedModel, "peft_type is 'LOHA'"),
        ({"use_dora": True}, UnsupportedModel, "use_dora is True"),
        ({"bias": "all"}, UnsupportedModel, "bias is 'all'"),
        ({"init_lora_weights": "pissa_niter_4"}, UnsupportedModel, "changes the model"),
        ({"lora_alpha": "much"}, ModelFileError, "lora_alpha is 'much'"),
        ({"alora_invocation_tokens": "x"}, ModelFileError, "it must be tokens"),
    ],
)
def test_settings_that_mean_something_else(
    llama: Path, tmp_path: Path, changes: dict[str, Any], error: type[LlaminaError], message: str
) -> None:
    lora = adapter(tmp_path / "lora", "llama", **changes)
    with llamina.load(llama, backend="reference") as engine, pytest.raises(error, match=message):
        engine.load_adapter(lora)


MODULE = "base_model.model.model.layers.0.self_attn.q_proj"
A, B = values("a", [4, 64]), values("b", [64, 4])


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({f"{MODULE}.lora_A.weight": A}, ModelFileError, "not two matrices"),
        ({f"{MODULE}.lora_A.weight": A, f"{MODULE}.lora_B.weight": B[0]}, ModelFileError, "not two matrices"),
        ({f"{MODULE}.lora_A.weight": A, f"{MODULE}.lora_B.weight": B[:32]}, UnsupportedModel, "do not fit"),
        ({f"{MODULE}.weight": A}, UnsupportedModel, "not part of a LoRA"),
        ({}, ModelFileError, "no tensors"),
        ({f"{MODULE}x.lora_{p}.weight": x for p, x in (("A", A), ("B", B))}, UnsupportedModel, "llama does not have"),
        (
            {f"{MODULE.replace('.0.', '.7.')}.lora_{p}.weight": x for p, x in (("A", A), ("B", B))},
            UnsupportedModel,
            "not among the matrices",
        ),
    ],
)
def test_tensors_that_do_not_fit(
    llama: Path, tmp_path: Path, tensors: dict[str, F32], error: type[LlaminaError], message: str
) -> None:
    lora = adapter(tmp_path / "lora", "llama")
    save(lora / "adapter_model.safetensors", {name: ("F32", x) for name, x in tensors.items()})
    with llamina.load(llama, backend="reference") as engine, pytest.raises(error, match=message):
        engine.load_adapter(lora)


def test_matrices_that_gguf_splits_are_refused(tmp_path: Path) -> None:
    convert(folder(tmp_path / "base", "deepseek2"), tmp_path / "base.gguf", type="f32")
    lora = adapter(tmp_path / "lora", "deepseek2")
    module = "base_model.model.model.layers.0.self_attn.kv_b_proj"
    save(lora / "adapter_model.safetensors", {f"{module}.lora_{p}.weight": ("F32", x) for p, x in (("A", A), ("B", B))})
    refused = pytest.raises(UnsupportedModel, match="not one matrix in GGUF")
    with llamina.load(tmp_path / "base.gguf", backend="reference") as engine, refused:
        engine.load_adapter(lora)


def test_folders_that_hold_no_adapter(llama: Path, tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora", "llama")
    (lora / "adapter_model.safetensors").unlink()
    with llamina.load(llama, backend="reference") as engine:
        for path, missing in ((tmp_path, "adapter_config.json"), (lora, "adapter_model.safetensors")):
            with pytest.raises(ModelNotFound, match=f"has no {missing}"):
                engine.load_adapter(path)


def test_an_invocation_comes_along(llama: Path, tmp_path: Path) -> None:
    lora = adapter(tmp_path / "lora", "llama", alora_invocation_tokens=TOKENS[5:7])
    plain, late = logits(llama), logits(llama, lora)
    assert np.array_equal(plain[:5], late[:5]) and not np.array_equal(plain[5], late[5])
    assert json.loads((lora / "adapter_config.json").read_text())["alora_invocation_tokens"] == TOKENS[5:7]
    assert len(modules("llama")) == 2 * 7 + 2
