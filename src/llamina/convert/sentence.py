"""What sentence-transformers keeps beside a model: the pooling, and matrices behind it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamina.convert.lazy import Lazy
from llamina.convert.safetensors import tensors_of
from llamina.errors import ModelFileError, UnsupportedModel
from llamina.tokenizer.huggingface.json_file import read_json

_POOLING = {"mean_tokens": 1, "cls_token": 2, "lasttoken": 3}
_PLACES = (2, 3)  # of the matrices, by their names in GGUF


def pooling(folder: Path) -> dict[str, object]:
    """Return the key of the pooling of hidden states. Raises UnsupportedModel for one that GGUF has no number for."""
    path = next(iter(_modules(folder, "Pooling")), None)
    if path is None:
        return {}
    config = read_json(path / "config.json")
    kinds = [number for name, number in _POOLING.items() if config.get(f"pooling_mode_{name}")]
    if len(kinds) != 1:
        raise UnsupportedModel(f"{path / 'config.json'} asks for a pooling other than mean, first token or last token")
    return {"pooling_type": kinds[0]}


def dense_layers(folder: Path) -> dict[str, Lazy]:
    """Return the matrices behind the pooling by their names in GGUF. Raises UnsupportedModel for more than two of them,
    and for biases or activations, which GGUF does not have."""
    found: dict[str, Lazy] = {}
    for place, path in enumerate(_modules(folder, "Dense"), _PLACES[0]):
        config, tensors = read_json(path / "config.json"), tensors_of(path)
        activation = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if place not in _PLACES or activation != "Identity" or list(tensors) != ["linear.weight"]:
            raise UnsupportedModel(f"{path} has a bias or the activation {activation}, or is one of more than two")
        found[f"dense_{place}.weight"] = tensors["linear.weight"]
    return found


def dense_sizes(layers: Mapping[str, Lazy]) -> dict[str, object]:
    """Return the keys of the matrices' sizes."""
    sizes: dict[str, object] = {}
    for name, tensor in layers.items():
        stem = name.removesuffix(".weight")
        sizes |= {f"{stem}_feat_in": tensor.shape[1], f"{stem}_feat_out": tensor.shape[0]}
    return sizes


def dense_count(folder: Path) -> int:
    """Return how many matrices are behind the pooling."""
    return len(_modules(folder, "Dense"))


def _modules(folder: Path, kind: str) -> list[Path]:
    """Return the folders of the modules of a kind. Raises ModelFileError if the list of them is damaged."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        listed: list[dict[str, Any]] = json.loads(path.read_bytes())
        return [folder / module["path"] for module in listed if module["type"].endswith(kind)]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ModelFileError(f"{path} is damaged: fetch it again") from None
