"""Adapters as PEFT saves them, for the models written here, and those models with the adapters merged into them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from convert_folders import MODELS, folder, save, values, weights

F32 = npt.NDArray[np.float32]
CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny", "r": 4, "lora_alpha": 12}
SKIPPED = ("norm", "embed", "lm_head", "ln_", "conv1d", "kv_b_proj", "shared_expert_gate", ".wte", ".wpe")
MORE = {"llama": ("embed_tokens", "lm_head")}  # of these modules too, where they are


def modules(name: str) -> dict[str, list[int]]:
    """What is adapted: the matrices, with their shapes."""
    wanted = MORE.get(name, ())
    return {
        tensor.removesuffix(".weight"): shape
        for tensor, shape in MODELS[name]["tensors"].items()
        if len(shape) == 2
        and tensor.endswith(".weight")
        and (not any(word in tensor for word in SKIPPED) or any(word in tensor for word in wanted))
    }


def pair(name: str, module: str) -> tuple[F32, F32]:
    """lora_A and lora_B. An embedding's A has a column for each token; GPT-2's matrices are the other way round."""
    first, second = modules(name)[module]
    out, width = (second, first) if name == "gpt2" or "embed_tokens" in module else (first, second)
    rank = 6 if module.endswith("o_proj") else 4
    return values(f"{module}.a", [rank, width]), values(f"{module}.b", [out, rank]) / np.float32(rank)


def scale(module: str, rslora: bool) -> float:
    alpha, rank = (3, 6) if module.endswith("o_proj") else (12, 4)
    return float(alpha / (rank**0.5 if rslora else rank))


def adapter(path: Path, name: str, rslora: bool = False, **changes: Any) -> Path:
    """The folder of an adapter with a rank and a scale of its own for some modules."""
    path.mkdir(parents=True)
    targets = sorted({module.rpartition(".")[2] for module in modules(name)})
    config = CONFIG | {
        "target_modules": targets,
        "rank_pattern": {"o_proj": 6},
        "alpha_pattern": {r"self_attn\.o_proj": 3},
        "use_rslora": rslora,
        "fan_in_fan_out": name == "gpt2",
    }
    (path / "adapter_config.json").write_text(json.dumps(config | changes))
    tensors: dict[str, tuple[str, npt.NDArray[Any]]] = {}
    for module in modules(name):
        middle, end = ("lora_embedding_", "") if "embed_tokens" in module else ("lora_", ".weight")
        for part, x in zip("AB", pair(name, module), strict=True):
            tensors[f"base_model.model.{module}.{middle}{part}{end}"] = ("F32", x)
    save(path / "adapter_model.safetensors", tensors)
    return path


def merged(path: Path, name: str, rslora: bool = False) -> Path:
    """The model's folder with everything added that the adapter stands for."""
    folder(path, name)
    tensors = weights(MODELS[name])
    for module in modules(name):
        dtype, x = tensors[f"{module}.weight"]
        a, b = pair(name, module)
        product = (b @ a).T if name == "gpt2" or "embed_tokens" in module else b @ a
        tensors[f"{module}.weight"] = dtype, x + np.float32(scale(module, rslora)) * product
    save(path / "model.safetensors", tensors)
    return path
