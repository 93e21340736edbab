"""Hugging Face folders of models that see: stored settings, weights from a fixed generator, and tiles to show them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from convert_folders import HERE, save, values

SPECS = HERE / "encoders.json"
FACTS = HERE / "encoders.npz"
MODELS: dict[str, Any] = json.loads(SPECS.read_text()) if SPECS.exists() else {}
SIDE = 56
ANY_SIZE = {"qwen2vl", "qwen25vl", "pixtral", "mistral3"}
BREAK = 12  # the token [IMG_BREAK]


def tiles(name: str) -> list[npt.NDArray[np.uint8]]:
    """What a model is shown: squares, or what is wide and what is tall, waves with noise."""
    rng = np.random.default_rng(7)
    found = []
    for width, height in ((140, 84), (56, 112)) if name in ANY_SIZE else ((SIDE, SIDE), (SIDE, SIDE)):
        y, x = np.mgrid[0:height, 0:width]
        waves = np.stack([np.sin(x / 9 + k) + np.cos(y / (7 + k)) for k in range(3)], -1)
        noisy = 128 + 50 * waves + 20 * rng.standard_normal((height, width, 3))
        found.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return found


def folder(path: Path, name: str) -> Path:
    """A model of encoders.json as transformers would save it, with tensors of the text model left out."""
    spec = MODELS[name]
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(spec["config"]))
    (path / "preprocessor_config.json").write_text(json.dumps(spec["processor"]))
    (path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": BREAK, "content": "[IMG_BREAK]"}]}))
    tensors = {key: ("F32", values(key, shape, "soft_emb" in key)) for key, shape in spec["tensors"].items()}
    save(path / "model.safetensors", tensors)
    return path
