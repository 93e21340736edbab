"""How the ranks of a divided model meet: threads of one process, or processes by torch.distributed."""

from importlib import import_module
from threading import Barrier
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llamina.errors import RequestError

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


class TorchLink:
    """A process of torch.distributed's default group, which is made unless it is there.

    Rank, size and address are those of the environment (`torchrun` sets them: RANK, WORLD_SIZE, MASTER_ADDR,
    MASTER_PORT). With `nccl` arrays go through the memory of the GPU `rank`. Raises RequestError without torch.
    """

    def __init__(self, backend: Literal["gloo", "nccl"] = "gloo") -> None:
        try:
            torch, ranks = import_module("torch"), import_module("torch.distributed")
        except ImportError as error:
            raise RequestError("ranks in processes meet by torch.distributed: pip install torch") from error
        if not ranks.is_initialized():
            ranks.init_process_group(backend)
        self._torch: Any = torch
        self._ranks: Any = ranks
        self.rank, self.size = int(ranks.get_rank()), int(ranks.get_world_size())
        self._device = f"cuda:{self.rank}" if backend == "nccl" else "cpu"

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def all_reduce(self, array: Array) -> None:
        tensor = self._torch.from_numpy(array)
        there = tensor.to(self._device)
        self._ranks.all_reduce(there)
        if there is not tensor:
            tensor.copy_(there)
