"""How the ranks of a divided model meet: threads of one process."""

from threading import Barrier

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class Meeting:
    """Where the threads of one process meet; `links` has a rank's way to it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.links = [ThreadLink(self, rank) for rank in range(size)]
        self.arrays: list[Array | None] = [None] * size
        self.barrier = Barrier(size)

    def abort(self) -> None:
        """A rank has failed: whoever waits for it, or will, gets threading.BrokenBarrierError, until `reset`."""
        self.barrier.abort()

    def reset(self) -> None:
        self.barrier.reset()


class ThreadLink:
    """Sums are made in the order of ranks, by each rank for itself."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self.rank = meeting, rank

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.size}"

    @property
    def size(self) -> int:
        return self._meeting.size

    def all_reduce(self, array: Array) -> None:
        meeting = self._meeting
        meeting.arrays[self.rank] = array
        meeting.barrier.wait()
        first, *others = [found for found in meeting.arrays if found is not None]
        total = first.copy()
        for other in others:
            total += other
        meeting.barrier.wait()  # all have read it
        array[...] = total
