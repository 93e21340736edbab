"""Tensors by their GGUF names: `weights.output_norm`, `weights.layer(3).attn_q`."""

from collections.abc import Mapping
from dataclasses import replace

from llamina.errors import MissingTensor
from llamina.ops import Weight


class Weights:
    """A prefix into the file's tensors. An attribute is the tensor of that name; a missing one is an error."""

    def __init__(self, tensors: Mapping[str, Weight], prefix: str = "", biased: bool = True) -> None:
        self._tensors = tensors
        self._prefix = prefix
        self._biased = biased

    def layer(self, index: int) -> "Weights":
        return Weights(self._tensors, f"blk.{index}.")

    def part(self, name: str, then: str = ".") -> "Weights":
        """Tensors whose names go on, as in `blk.0.indexer.proj`."""
        return Weights(self._tensors, f"{self._prefix}{name}{then}")

    @property
    def unbiased(self) -> "Weights":
        """The same without the biases that come along: an architecture may not use those a file has."""
        return Weights(self._tensors, self._prefix, biased=False)

    def get(self, name: str) -> Weight | None:
        """The tensor `NAME.weight`, or `NAME` (a few have no suffix), or a lone `NAME.bias`."""
        for suffix in (".weight", "", ".bias"):
            if weight := self._tensors.get(f"{self._prefix}{name}{suffix}"):
                return weight if self._biased else replace(weight, bias=None)
        return None

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __getattr__(self, name: str) -> Weight:
        weight = self.get(name)
        if weight is None:
            raise MissingTensor(f"{self._prefix}{name}.weight")
        return weight
