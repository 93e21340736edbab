"""A config and named weights as the GGUF file that they would be, in memory: what the engine loads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llamina.convert.families import family_of
from llamina.convert.lazy import Lazy, floats
from llamina.convert.metadata import model_metadata
from llamina.convert.rename import renamed
from llamina.convert.settings import Settings
from llamina.gguf import GGUF, Tensor, tensor_type
from llamina.lm.config import ModelConfig
from llamina.lm.weights import ModelWeights

F32 = tensor_type("F32")


def as_gguf(config: ModelConfig, weights: ModelWeights, vocabulary: Mapping[str, Any]) -> GGUF:
    """The file, by the tables of `llamina convert`: GGUF's names and keys, matrices turned the way that it has them.

    Everything is float32. `llamina.load` takes it as it is, `llamina.gguf.write` makes a file of it.
    """
    settings = Settings(config.to_json())
    family = family_of(settings)
    family.check(settings)
    notes: list[str] = []  # on tensors left out, and `weights` has none
    tensors = renamed(family, settings, weights.tensors, notes)
    metadata: dict[str, Any] = {
        "general.architecture": family.architecture,
        "general.type": "model",
        "general.file_type": 0,
        **model_metadata(Path(), family, settings, notes),
        **vocabulary,
    }
    return GGUF("llamina.lm", 3, "little", 32, metadata, {}, {name: _tensor(name, t) for name, t in tensors.items()})


def _tensor(name: str, tensor: Lazy) -> Tensor:
    values = np.ascontiguousarray(floats(tensor.load(), tensor.dtype))
    return Tensor(name, tensor.shape, F32, 0, "little", values.reshape(-1).view(np.uint8))
