"""The KV cache of one sequence, as one sees it: how long it is, its keys and values, copies of it, going back."""

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from llamina.backends.base import tensors
from llamina.errors import CapacityError, RequestError
from llamina.quant import decode

if TYPE_CHECKING:
    from llamina.cache import Lease
    from llamina.lm.runner import Runner

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerKvCache:
    """What a layer has kept of each token: keys and values [heads, tokens, dim]. Keys are rotated already (RoPE)."""

    keys: F32
    values: F32

    @property
    def total_len(self) -> int:
        return int(self.keys.shape[1])


class PastKvCache:
    """The keys and values of one sequence in all layers: a lease of pages in the memory of a runner's program.

    It grows with each `forward` that it is given to. Close it to give its pages back.
    """

    def __init__(self, runner: "Runner", lease: "Lease", past_len: int = 0) -> None:
        self.runner = runner
        self.lease = lease
        self.past_len = past_len  # tokens whose keys and values it has

    def layer(self, index: int) -> LayerKvCache:
        """A copy of a layer's keys and values. Raises RequestError if there is no such layer."""
        states = [state for state in self.runner.plan.states if state.layer == index]
        if not states:
            layers = sorted({state.layer for state in self.runner.plan.states})
            raise RequestError(f"layer {index} has no KV cache: those that have one are {layers}", "index")
        pages, start = self.runner.program.states.export("page", self.lease.pages), 0
        found = []
        for tensor in tensors(self.runner.plan.states, self.runner.capacity):
            if tensor.state == states[0]:
                part = decode(np.ascontiguousarray(pages[:, start : start + tensor.nbytes]), tensor.kind.upper())
                rows = part.reshape(-1, *tensor.shape).swapaxes(0, 1)  # heads, pages, tokens of a page, dim
                found.append(rows.reshape(tensor.shape[0], -1, tensor.shape[2])[:, : self.past_len])
            start += tensor.nbytes
        return LayerKvCache(*found)

    def fork(self) -> "PastKvCache":
        """Another cache with the same tokens. Pages are shared until one of both writes (copy on write)."""
        lease = self.runner.pages.fork(self.lease)
        if lease is None:
            raise CapacityError(f"{self.runner.capacity.slots} sequences have a cache: close one, or allow more")
        return PastKvCache(self.runner, lease, self.past_len)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if not 0 <= length <= self.past_len:
            raise RequestError(f"length is {length}: it must be from 0 to {self.past_len}", "length")
        self.runner.pages.rewind(self.lease, length)
        self.past_len = length

    def close(self) -> None:
        """Give the pages back; the cache must not be used afterwards."""
        self.runner.pages.release(self.lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
