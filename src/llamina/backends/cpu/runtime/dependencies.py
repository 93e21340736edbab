"""Dependencies between calls, found in the memory they read and write: which run side by side, where threads wait.

A chain is a run of calls that one thread makes one after the other for its part of the rows. A group is a run of chains
that do not touch each other's memory. Threads wait for each other between groups only: that is the barrier.
"""

import numpy as np
import numpy.typing as npt

from llamina.backends.cpu.runtime.arena import Buffer
from llamina.backends.cpu.runtime.call import LinkedCall

ROW_BY_ROW = (
    "add", "mul", "div", "scale", "softcap", "at_most", "at_least", "temper", "copy", "rms_norm", "layer_norm",
    "activate", "gated", "quantize", "softmax",
)  # fmt: skip
"""Kernels whose part i of n writes rows that depend on nothing but the same rows of what they read."""


def chain(calls: list[LinkedCall]) -> list[list[LinkedCall]]:
    """Calls that go through the same rows in the same way are chained."""
    chains: list[list[LinkedCall]] = []
    for call in calls:
        if chains and _follows(chains[-1][-1], call):
            chains[-1].append(call)
        else:
            chains.append([call])
    return chains


def _follows(before: LinkedCall, call: LinkedCall) -> bool:
    same = all(before.call.args.get(name) == call.call.args.get(name) for name in ("count", "outer"))
    return same and all(c.call.kernel.split(".")[0] in ROW_BY_ROW for c in (before, call))


def mark_lifetimes(chains: list[list[LinkedCall]]) -> None:
    """Buffers live by chains: while one thread is at a chain's end, another may still be at its beginning."""
    for index, calls in enumerate(chains):
        for call in calls:
            for buffer in (*call.reads, *call.writes):
                buffer.touch(index)


def group(chains: list[list[LinkedCall]]) -> list[int]:
    """The number of chains in each group: one that touches what an earlier one may be working on starts a new group."""
    sizes: list[int] = []
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    for calls in chains:
        r = [buffer for call in calls for buffer in call.reads]
        w = [buffer for call in calls for buffer in call.writes]
        clash = any(a.overlaps(b) for a in r for b in writes) or any(
            a.overlaps(b) for a in w for b in (*writes, *reads)
        )
        if clash or not sizes:
            sizes.append(0)
            reads, writes = [], []
        sizes[-1] += 1
        reads += r
        writes += w
    return sizes


def rows_of(table: npt.NDArray[np.int64], sizes: list[int]) -> npt.NDArray[np.int64]:
    """Consecutive runs of a table's rows: (address of the first, how many)."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.stack([table.ctypes.data + table.strides[0] * starts, np.array(sizes)], axis=1).astype(np.int64)
