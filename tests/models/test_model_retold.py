"""The same model told in another way gives the golden logits too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import llamina
from llamina.gguf import open_model, tensor_type, write

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]
Files = Callable[[str], Path]


def as_first_written(tensors: Tensors, metadata: dict[str, Any]) -> None:
    """DeepSeek V2's first files: one matrix makes every head's keys and values of the latent vector."""
    for layer in range(2):
        keys, values = (tensors.pop(f"blk.{layer}.attn_{part}_b.weight") for part in "kv")
        tensors[f"blk.{layer}.attn_kv_b.weight"] = np.concatenate([keys.T, values])
    for part in ("key", "value"):
        metadata[f"attention.{part}_length"] = metadata.pop(f"attention.{part}_length_mla")


def with_gates_and_ups_as_one(tensors: Tensors, metadata: dict[str, Any]) -> None:
    for name in [name for name in tensors if "ffn_gate_exps" in name]:
        both = [tensors.pop(name), tensors.pop(name.replace("gate", "up"))]
        tensors[name.replace("gate", "gate_up")] = np.concatenate(both, axis=1)


def with_scales(tensors: Tensors, metadata: dict[str, Any]) -> None:
    """NVFP4's files have a scale for each matrix, or for each expert's."""
    for name in [name for name in tensors if "ffn_" in name or "attn_q" in name if "norm" not in name]:
        matrix = tensors[name]
        scales = np.linspace(0.5, 3, len(matrix) if matrix.ndim == 3 else 1, dtype=np.float32)
        tensors[name] = matrix / scales.reshape(-1, *[1] * (matrix.ndim - 1))
        tensors[name.replace("weight", "scale")] = scales


def with_a_drafting_layer(tensors: Tensors, metadata: dict[str, Any]) -> None:
    """Multi-token prediction's layers are counted with the others, and have nothing to say about the next token."""
    metadata["block_count"] += 1
    metadata["nextn_predict_layers"] = 1
    tensors["blk.2.attn_norm.weight"] = np.full(128, np.nan, np.float32)


@pytest.mark.parametrize("change", [as_first_written, with_gates_and_ups_as_one, with_scales, with_a_drafting_layer])
def test_the_same_logits(
    change: Callable[[Tensors, dict[str, Any]], None], files: Files, truth: dict[str, Array], tmp_path: Path
) -> None:
    name, arch = "deepseek2-moe", "deepseek2."
    file = open_model(files(name))
    tensors = {n: t.data.view(np.float32).reshape(t.shape) for n, t in file.tensors.items()}
    metadata = {key.removeprefix(arch): value for key, value in file.metadata.items() if key.startswith(arch)}
    change(tensors, metadata)
    values = {key: value for key, value in file.metadata.items() if not key.startswith(arch)}
    values |= {f"{arch}{key}": value for key, value in metadata.items()}
    weights = [(n, t.shape, tensor_type("F32"), np.ascontiguousarray(t).view(np.uint8)) for n, t in tensors.items()]
    write(tmp_path / "model.gguf", values, weights)
    with llamina.load(tmp_path / "model.gguf", kv_type="f32", threads=2) as engine:
        got = engine.logits(truth[f"{name}.tokens"])
    assert np.sum(np.square(got - truth[name])) / np.sum(np.square(truth[name])) < 1e-6
