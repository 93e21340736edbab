"""Adapters of random numbers for any model, and the model that they would make if they were merged into it."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llamina.gguf import GGUF, Kind, ValueType, tensor_type, write
from llamina.quant import decode

Array = npt.NDArray[np.float32]
Pairs = dict[str, tuple[Array, Array]]  # a and b by the names of matrices


def draw(path: Path, names: Iterable[str], rank: int, seed: int, size: float = 0.3) -> Pairs:
    """Pairs beside the named matrices of a model; their product has about `size` times the matrices' own size."""
    rng, found = np.random.default_rng(seed), {}
    with GGUF.open(path) as model:
        for name in names:
            tensor = model.tensors[name]
            *experts, out, width = tensor.shape
            flipped = name == "token_embd.weight"
            a = (out, rank) if flipped else (*experts, rank, width)
            b = (width, rank) if flipped else (*experts, out, rank)
            spread = (size * float(np.std(decode(tensor.data, tensor.type, tensor.shape))) / rank**0.5) ** 0.5
            found[name] = tuple((rng.standard_normal(shape) * spread).astype(np.float32) for shape in (a, b))
    return found  # type: ignore[return-value]


def save(path: Path, architecture: str, pairs: Pairs, alpha: float = 0.0, kind: str = "F32", **extra: object) -> Path:
    """A file in llama.cpp's format; `extra` metadata, with `__` for dots, may replace what is usual."""
    metadata = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": alpha,
    } | {key.replace("__", "."): value for key, value in extra.items()}
    dtype = {"F32": np.float32, "F16": np.float16}[kind]
    tensors = [
        (f"{name}.lora_{part}", array.shape, tensor_type(kind), array.astype(dtype))
        for name, pair in pairs.items()
        for part, array in zip("ab", pair, strict=True)
    ]
    types = {"adapter.lora.alpha": Kind(ValueType.FLOAT32)}
    if isinstance(metadata.get("adapter.alora.invocation_tokens"), list):
        types["adapter.alora.invocation_tokens"] = Kind(ValueType.ARRAY, ValueType.UINT32)
    write(path, metadata, tensors, metadata_types=types)
    return path


def merge(path: Path, out: Path, added: Iterable[tuple[Pairs, float]]) -> Path:
    """The model with the pairs multiplied out and added to its (F32) matrices."""
    changes: dict[str, list[npt.NDArray[np.float64]]] = {}
    for pairs, scale in added:
        for name, (a, b) in pairs.items():
            product = a.astype(np.float64) @ b.T if name == "token_embd.weight" else b.astype(np.float64) @ a
            changes.setdefault(name, []).append(scale * product)
    with GGUF.open(path) as model:
        tensors = []
        for name, tensor in model.tensors.items():
            if name not in changes:
                tensors.append(tensor)
                continue
            assert tensor.type.name == "F32"
            values = decode(tensor.data, tensor.type, tensor.shape) + sum(changes[name])
            tensors.append((name, tensor.shape, tensor.type, values.astype(np.float32)))
        write(out, model.metadata, tensors, metadata_types=model.metadata_types)
    return out
