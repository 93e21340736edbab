"""Reads an adapter by its path. llama.cpp's files are GGUF with `NAME.lora_a` and `NAME.lora_b` for each matrix."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llamina.adapters.adapter import Adapter
from llamina.errors import ModelFileError, UnsupportedModel
from llamina.gguf import GGUF
from llamina.ops import LowRank
from llamina.quant import decode

PARTS = (".lora_a", ".lora_b")


def read_adapter(path: str | os.PathLike[str], model: Mapping[str, Any]) -> Adapter:
    """Return the adapter in a GGUF file or a folder of PEFT; `model` is the metadata of the model, for the latter.

    Raises ModelNotFound, ModelFileError or UnsupportedModel.
    """
    if os.path.isdir(path):
        from llamina.adapters.peft import read_folder

        return read_folder(Path(path), model)
    with GGUF.open(Path(path)) as file:
        return _read(file)


def _read(file: GGUF) -> Adapter:
    for key, wanted in (("general.type", "adapter"), ("adapter.type", "lora")):
        if (value := file.metadata.get(key)) != wanted:
            raise UnsupportedModel(f"{file.source}: {key} is {value!r}, not {wanted!r}: the file is no LoRA adapter")
    alpha = file.metadata.get("adapter.lora.alpha", 0.0)
    if not isinstance(alpha, int | float) or not np.isfinite(alpha):
        raise ModelFileError(f"{file.source}: adapter.lora.alpha is {alpha!r}: must be a number")
    return Adapter(
        file.source,
        str(file.metadata.get("general.architecture", "")),
        {name: _pair(file, name, float(alpha)) for name in _names(file)},
        _invocation(file),
    )


def _names(file: GGUF) -> list[str]:
    """Return the names of the adapted matrices. Raises if the file has other tensors, or a part is missing."""
    names = dict.fromkeys(name[: -len(PARTS[0])] for name in file.tensors if name.endswith(PARTS))
    for name in file.tensors:
        if not name.endswith(PARTS):
            raise UnsupportedModel(f"{file.source} holds {name}, which is not part of a LoRA: adapt matrices only")
    for name in names:
        for part in PARTS:
            if name + part not in file.tensors:
                raise ModelFileError(f"{file.source} lacks {name}{part}: get the file again")
    if not names:
        raise ModelFileError(f"{file.source} has no tensors: it adapts nothing")
    return list(names)


def _pair(file: GGUF, name: str, alpha: float) -> LowRank:
    a, b = (decode(t.data, t.type.name, t.shape) for t in (file.tensors[name + part] for part in PARTS))
    rank = b.shape[-1]
    return LowRank(a, b, alpha / rank if alpha else 1.0)


def _invocation(file: GGUF) -> tuple[int, ...]:
    given: Any = file.metadata.get("adapter.alora.invocation_tokens", ())
    tokens = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(tokens, list | tuple) or not all(isinstance(t, int) for t in tokens):
        raise ModelFileError(f"{file.source}: adapter.alora.invocation_tokens is {given!r}: it must be tokens")
    return tuple(tokens)
