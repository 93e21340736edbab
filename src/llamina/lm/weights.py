"""Named weights of a model: read from safetensors, drawn at random, put there by hand."""

import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from llamina.convert.lazy import Lazy, floats
from llamina.convert.names import UNUSED, WRAPPERS
from llamina.convert.safetensors import save_tensors, tensors_in, tensors_of
from llamina.errors import ModelFileError
from llamina.lm.config import ModelConfig, Shape

F32 = npt.NDArray[np.float32]


class ModelWeights(Mapping[str, F32]):
    """Arrays by Hugging Face's names, as `ModelConfig.shapes` lists them. Those of a file are read when they are asked
    for, and come as float32."""

    def __init__(self, tensors: Mapping[str, npt.ArrayLike] | None = None) -> None:
        self.tensors: dict[str, Lazy] = {}
        for name, values in (tensors or {}).items():
            self.insert(name, values)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The weights of a safetensors file, or of all of a folder. Raises ModelFileError."""
        found, source = cls(), Path(path)
        found.tensors = tensors_of(source) if source.is_dir() else tensors_in(source)
        return found

    @classmethod
    def zeros(cls, config: ModelConfig) -> Self:
        """All weights 0, but those of norms 1."""
        return cls({name: _initial(name, shape) for name, shape in config.shapes().items()})

    @classmethod
    def random(cls, config: ModelConfig, seed: int = 0, deviation: float = 0.02) -> Self:
        """Matrices of normal numbers, as before training; biases are 0 and norms 1. The same seed gives the same."""
        rng = np.random.default_rng(seed)
        return cls(
            {
                name: rng.normal(0, deviation, shape) if len(shape) > 1 else _initial(name, shape)
                for name, shape in config.shapes().items()
            }
        )

    def __getitem__(self, name: str) -> F32:
        tensor = self.tensors[name]
        return floats(tensor.load(), tensor.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def n_params(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())

    def insert(self, name: str, values: npt.ArrayLike) -> None:
        """Put an array there, in the place of one with the same name."""
        self.tensors[name] = Lazy.here(np.array(values, np.float32))

    def check(self, config: ModelConfig) -> None:
        """Raise ModelFileError unless there are exactly the weights of a config, in their shapes.

        Names may lack the prefix of a wrapper (`transformer.`, `model.`), and masks of old files are passed over.
        """
        wanted = {_short(name): shape for name, shape in config.shapes().items()}
        found = {_short(name): tensor.shape for name, tensor in self.tensors.items() if not UNUSED.search(name)}
        if "lm_head.weight" not in wanted:  # tied: a file may have the embeddings twice
            found.pop("lm_head.weight", None)
        if missing := wanted.keys() - found.keys():
            raise ModelFileError(f"the weights lack {_first(missing)}: add what is missing")
        if unknown := found.keys() - wanted.keys():
            raise ModelFileError(f"the weights have {_first(unknown)}, which the config has not: take it out")
        for name, shape in wanted.items():
            if found[name] != shape:
                raise ModelFileError(f"{name} is {list(found[name])}: by the config it must be {list(shape)}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file of float32."""
        save_tensors(Path(path), self)


def _initial(name: str, shape: Shape) -> F32:
    is_norm = len(shape) == 1 and name.endswith(".weight")
    return np.full(shape, float(is_norm), np.float32)


def _first(names: Set[str]) -> str:
    return min(names) if len(names) == 1 else f"{min(names)} and {len(names) - 1} more"


def _short(name: str) -> str:
    return WRAPPERS.sub("", name)
