"""Counter-based random numbers: a draw depends only on the seed and on its position in the sequence."""

import secrets

import numpy as np

CHOICE, EXCLUSION = 0, 1  # purposes: each has numbers of its own


class Random:
    """Uniform numbers of one sequence (Philox, keyed by seed and stream, counted by position and purpose)."""

    def __init__(self, seed: int | None, stream: int = 0) -> None:
        self.seed = secrets.randbits(64) if seed is None else seed
        self._philox = np.random.Philox(key=self.seed | stream << 64)
        self._state = self._philox.state

    def uniform(self, position: int, purpose: int) -> float:
        """Return the number in [0, 1) for a position and a purpose."""
        self._state["state"]["counter"][:] = (0, 0, position, purpose)  # type: ignore[index]
        self._philox.state = self._state
        return float(int(self._philox.random_raw()) >> 11) * 2.0**-53
