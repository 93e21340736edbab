"""A LoRA adapter, whatever file it came from."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from llamina.errors import UnsupportedModel
from llamina.ops import LowRank, Step


@dataclass(frozen=True, eq=False)
class Adapter:
    """Low-rank pairs by the names of the matrices adapted. With `invocation` tokens it acts from these on (aLoRA)."""

    source: str
    architecture: str
    pairs: Mapping[str, LowRank]
    invocation: tuple[int, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the contents."""
        digest = hashlib.blake2b(repr(self.invocation).encode(), digest_size=16)
        for name, pair in sorted(self.pairs.items()):
            digest.update(f"{name} {pair.a.shape} {pair.b.shape} {pair.scale!r}".encode())
            for part in (pair.a, pair.b):
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def check(self, architecture: str, matrices: Mapping[str, Step]) -> None:
        """Raise UnsupportedModel for a model that it was not trained on.

        `matrices` are those of the model that can be adapted, each with a step of the plan that uses it.
        """
        if self.architecture != architecture:
            raise UnsupportedModel(
                f"{self.source} adapts a model of architecture {self.architecture}, and this one is {architecture}: "
                "load it into the model it was trained on"
            )
        for name, pair in self.pairs.items():
            step = matrices.get(name)
            if step is None:
                raise UnsupportedModel(
                    f"{self.source} adapts {name}, which is not among the matrices of the model that can be adapted"
                )
            shape = step.weights[0].shape
            if not pair.fits(step.op, shape):
                raise UnsupportedModel(
                    f"{self.source} adapts {name} with {list(pair.a.shape)} and {list(pair.b.shape)}, which do not fit "
                    f"its {list(shape)}: load it into the model it was trained on"
                )
