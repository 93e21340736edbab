"""Hugging Face folders written here: weights from a fixed generator, a stored config.json, a small tokenizer."""

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
TOKENIZERS = HERE / "tokenizers"
MODELS: dict[str, Any] = json.loads((HERE / "models.json").read_text()) if (HERE / "models.json").exists() else {}
TOKENS = [1, 17, 203, 64, 5, 150, 99, 31, 2, 250, 77, 11, 180, 42]
TEXTS = [
    "The llamas make a path.",
    "layers  upon layers\n\nof leaves",
    "305 + 21 = 326!",
    "Grüße, Привет мир 日本語",
    "a   b ",
    "",
    "🦙 x's",
]
Values = npt.NDArray[Any]


def values(name: str, shape: list[int], shifted: bool = False) -> npt.NDArray[np.float32]:
    """A tensor that depends on its name and shape alone; `shifted` norms are around 0 instead of 1."""
    if not shape:  # of Apertus' activation
        return np.array(-1e-6 if name.endswith("eps") else 0.4, np.float32)
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    x = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("A_log"):
        return np.float32(0.5) * np.abs(x)
    if "norm" in name.lower() or ".ln_" in name:
        return np.float32(0.1) * x + np.float32(name.endswith("weight") and not shifted)
    if name.endswith(("layer_scalar", "scale")):
        return 1 + np.float32(0.1) * x
    if len(shape) == 1:
        return np.float32(0.1) * x
    if "embed" in name or "lm_head" in name or ".wte" in name or ".wpe" in name:
        return x
    return x * np.float32(1.5 / np.sqrt(shape[-1]))


def bits(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """float32 → bfloat16, cut off."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def save(path: Path, tensors: Mapping[str, tuple[str, Values]]) -> None:
    """A safetensors file of names, types and values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, x) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [place, place + x.nbytes]}
        place += x.nbytes
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(x.tobytes() for _, x in tensors.values()))


def weights(spec: Mapping[str, Any]) -> dict[str, tuple[str, Values]]:
    """The tensors of a model of models.json."""
    kind = spec["config"]["model_type"]
    shifted = kind.startswith(("gemma", "nemotron")) and not kind.startswith(("gemma3n", "gemma4"))
    found = {name: values(name, shape, shifted) for name, shape in spec["tensors"].items()}
    dtype = spec["dtype"]
    return {name: (dtype, bits(x) if dtype == "BF16" else x) for name, x in found.items()}


def folder(path: Path, name: str, shards: int = 1) -> Path:
    """A model of models.json as transformers would save it."""
    spec = MODELS[name]
    shutil.copytree(TOKENIZERS / spec["tokenizer"], path)
    (path / "config.json").write_text(json.dumps(spec["config"]))
    tensors = weights(spec)
    if shards == 1:
        save(path / "model.safetensors", tensors)
        return path
    parts = [dict(list(tensors.items())[i::shards]) for i in range(shards)]
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    for file, part in zip(files, parts, strict=True):
        save(path / file, part)
    places = {key: file for file, part in zip(files, parts, strict=True) for key in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path
