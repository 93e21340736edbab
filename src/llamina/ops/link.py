"""What `all_reduce` needs: the other ranks of a model that is divided among several devices."""

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Link(Protocol):
    """One rank's way to the others."""

    @property
    def rank(self) -> int:
        """Its own number, from 0 on."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def all_reduce(self, array: npt.NDArray[np.float32]) -> None:
        """Put the sum over all ranks in the place of a contiguous array, once all have called it; the same bits."""
        ...
