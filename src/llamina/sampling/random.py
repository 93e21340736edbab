"""Random numbers by place: a draw depends on the seed and on where in the sequence it is made, on nothing else."""

import secrets

import numpy as np

CHOICE, EXCLUSION = 0, 1  # what a number is for: each purpose has numbers of its own


class Random:
    """Uniform numbers of one sequence (Philox, keyed by seed and stream, counted by place and purpose)."""

    def __init__(self, seed: int | None, stream: int = 0) -> None:
        self.seed = secrets.randbits(64) if seed is None else seed
        self._philox = np.random.Philox(key=self.seed | stream << 64)
        self._state = self._philox.state

    def uniform(self, place: int, purpose: int) -> float:
        """A number from 0 to below 1."""
        self._state["state"]["counter"][:] = (0, 0, place, purpose)  # type: ignore[index]
        self._philox.state = self._state
        return float(int(self._philox.random_raw()) >> 11) * 2.0**-53
