"""LoRA: what an adapter adds to a matrix is the product of two thin ones, which is never multiplied out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """scale × b·a beside a matrix [out, in]: a is [rank, in], b is [out, rank]; experts have one of each.

    Beside an embedding table [tokens, width], a row of a belongs to a token: a is [tokens, rank], b is [width, rank].
    """

    a: npt.NDArray[np.float32]
    b: npt.NDArray[np.float32]
    scale: float

    @property
    def rank(self) -> int:
        return int(self.b.shape[-1])

    def fits(self, op: str, shape: tuple[int, ...]) -> bool:
        """Whether it fits a matrix of this shape, which the operation multiplies with."""
        *experts, out, width = shape
        a = (*experts, self.rank, width) if op != "embed" else (out, self.rank)
        b = (*experts, out if op != "embed" else width, self.rank)
        return self.a.shape == a and self.b.shape == b
