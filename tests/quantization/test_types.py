"""The type of each tensor by file type: llama.cpp's own snapshots, and what callers ask for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamina.errors import ModelFileError, RequestError, UnsupportedModel
from llamina.gguf import tensor_type
from llamina.quantization.tensors import is_quantized, role_of
from llamina.quantization.types import FILE_TYPES, Facts, Options, file_type, needs_importances, tensor_types

MODELS = [
    *("deepseek-v3.1", "gemma-3-4b-it", "glm-4.6v", "gpt-oss-120b", "meta-llama-3.1-70b-instruct"),
    *("nvidia-nemotron-3-nano-30b-a3b", "qwen3-0.6b", "qwen3-14b", "qwen3-coder-next", "qwen3.5-397b-a17b"),
    *("qwen3.6-27b", "step-3.5-flash"),
]


def shapes_of(model: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that any snapshot of a model lists. Those of experts have three dimensions: MXFP4_MOE leaves them."""
    names = {name for section in model["types"].values() for group in section["others"].values() for name in group}
    flat = {name for group in model["types"]["MXFP4_MOE"]["others"].values() for name in group}
    shapes = {}
    for name in names:
        part = name.removesuffix(".weight").rpartition(".")[2]
        columns = model["columns"].get(part, model["n_embd"])
        shapes[name] = (64, columns) if name in flat else (8, 64, columns)
    return shapes


@pytest.mark.parametrize("name", MODELS)
def test_the_types_are_those_of_llama_cpp(name: str, golden: Callable[[str], Path]) -> None:
    known = json.loads(golden("file_types.json").read_text())
    assert set(known) == set(MODELS)
    model = known[name]
    shapes = shapes_of(model)
    numbers = (model["n_layer"], model["n_head"], model["n_head_kv"], model["n_expert"])
    facts = Facts(model["architecture"], *numbers)
    for mix, section in model["types"].items():
        expected = dict.fromkeys(shapes, section["default"])
        expected |= {tensor: kind for kind, group in section["others"].items() for tensor in group}
        found = tensor_types(shapes, mix, facts)
        assert {tensor: kind.name for tensor, kind in found.items() if kind} == expected, mix


TINY = {
    "token_embd.weight": (64, 512),
    "output.weight": (64, 512),
    "blk.0.attn_norm.weight": (512,),
    "blk.0.attn_v.weight": (64, 512),
    "blk.0.ffn_down.weight": (64, 512),
    "blk.0.ffn_gate_inp.weight": (8, 512),
    "blk.1.ffn_down.weight": (64, 96),
    "blk.1.ffn_up.weight": (64, 50),
}
FACTS = Facts("llama", 2, 8, 8, 0)


def names(mix: str, **options: Any) -> dict[str, str | None]:
    found = tensor_types(TINY, mix, FACTS, Options(**options))
    return {name: kind and kind.name for name, kind in found.items()}


def test_norms_and_routers_stay() -> None:
    found = names("Q4_K_M")
    assert found["blk.0.attn_norm.weight"] is None and found["blk.0.ffn_gate_inp.weight"] is None
    assert not is_quantized("position_embd.weight", (4, 512), "bert")
    assert not is_quantized("blk.0.ssm_conv1d.weight", (4, 512), "mamba")
    assert not is_quantized("blk.0.attn_q.bias", (4, 512), "llama")
    assert not is_quantized("blk.0.attn_q.weight", (1, 512), "llama")
    assert not is_quantized("blk.0.ssm_beta.weight", (4, 512), "glm5-next")
    assert is_quantized("blk.0.ssm_beta.weight", (4, 512), "qwen35")


def test_rows_that_do_not_fit() -> None:
    found = names("Q4_K_M")
    assert found["blk.1.ffn_down.weight"] == "Q8_0"  # of Q6_K
    assert found["blk.1.ffn_up.weight"] == "F16"
    with pytest.raises(UnsupportedModel, match="rows of 96, which Q1_0 cannot hold"):
        names("Q1_0")


def test_options() -> None:
    assert set(names("Q4_K_M", pure=True).values()) == {None, "Q4_K", "Q5_0", "F16"}
    assert names("Q4_K_M", output_type="q8_0")["output.weight"] == "Q8_0"
    assert names("Q4_K_M", keep_output=True)["output.weight"] is None
    assert names("Q4_K_M", embedding_type="F16")["token_embd.weight"] == "F16"
    found = names("Q4_K_M", overrides=[(r"blk\.0\.ffn", "q3_k"), ("ffn", "q8_0")])
    assert found["blk.0.ffn_down.weight"] == "Q3_K" and found["blk.1.ffn_down.weight"] == "Q8_0"
    assert found["blk.0.attn_v.weight"] == "Q6_K"
    with pytest.raises(RequestError, match=r"'\(' is no regular expression"):
        names("Q4_K_M", overrides=[("(", "q8_0")])
    for wrong in ({"overrides": [("ffn", "q9_k")]}, {"output_type": "i32"}, {"embedding_type": "q8_1"}):
        with pytest.raises(RequestError, match="is no type to quantize to: must be one of F32"):
            names("Q4_K_M", **wrong)


def test_plain_file_types_are_plain() -> None:
    for mix in ("F32", "F16", "BF16"):
        assert set(names(mix, overrides=[("ffn", "q8_0")]).values()) == {None, mix}


def test_importances_matter() -> None:
    facts = Facts("llama", 8, 8, 8, 0, importances=True)
    shapes = {f"blk.{i}.ffn_down.weight": (64, 512) for i in range(8)}
    kinds = [kind.name for kind in tensor_types(shapes, "Q4_0", facts).values() if kind]
    assert kinds == ["Q4_1", *["Q4_0"] * 7]
    assert needs_importances("blk.0.attn_q.weight", tensor_type("IQ2_XS"), "IQ2_XS")
    assert not needs_importances("token_embd.weight", tensor_type("IQ2_XS"), "IQ2_XS")
    assert needs_importances("blk.0.attn_q.weight", tensor_type("Q2_K"), "Q2_K_S")
    assert not needs_importances("blk.0.attn_q.weight", tensor_type("Q2_K"), "Q2_K")


def test_facts_of_a_file() -> None:
    known = {"general.architecture": "x", "x.block_count": 3, "x.attention.head_count": [8, 4], "x.expert_count": 2}
    assert Facts.of(known, False) == Facts("x", 3, 8, 8, 2)
    assert Facts.of(known | {"x.attention.head_count_kv": [0, 2]}, True).sharing == 0
    assert Facts("llama", 80, 64, 8, 0).is_70b and not Facts("llama", 80, 64, 64, 0).is_70b
    with pytest.raises(ModelFileError, match=r"general\.architecture is missing"):
        Facts.of({}, False)
    with pytest.raises(ModelFileError, match="in none of the 1 layers"):
        tensor_types({"blk.1.ffn_down.weight": (64, 512)}, "Q4_K_M", Facts("x", 1, 8, 8, 4))


def test_names_of_file_types() -> None:
    assert (file_type("q4_k"), file_type("iq2_m")) == ("Q4_K_M", "IQ2_M")
    with pytest.raises(RequestError, match="type is 'q9': must be one of F32"):
        file_type("q9")
    assert len({number for number, _ in FILE_TYPES.values()}) == len(FILE_TYPES)
    assert role_of("blk.3.attn_qkv.weight") == role_of("blk.3.attn_kv_b.weight") == "value"
