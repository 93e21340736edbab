"""Offloading: weights are mapped from the file, prefetched before they are used and evicted after.

Threads walk a segment of the program at a time; in between `madvise` tells the operating system what to read and drop.
"""

import ctypes
import mmap
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

from llamina.backends.cpu.runtime.call import LinkedCall
from llamina.errors import CapacityError, RequestError

Span = tuple[int, int]  # address, bytes
LEAST = 1 << 20  # bytes of weights from which a segment is worth a stop


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights are read from the file when they are needed, so that at most `budget` bytes of them are resident."""

    policy: Literal["budget", "pinned"]
    budget: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Groups [start, stop) of a program and the weights they read."""

    start: int
    stop: int
    weights: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.weights)


def segments_of(groups: list[list[LinkedCall]]) -> list[Segment]:
    """The program in segments of at least LEAST bytes of weights, cut between groups."""
    found: list[Segment] = []
    start, weights = 0, dict[int, int]()
    for index, calls in enumerate(groups):
        weights.update(span for call in calls if (span := _matrix(call)))
        if sum(weights.values()) >= LEAST or index + 1 == len(groups):
            found.append(Segment(start, index + 1, tuple(weights.items())))
            start, weights = index + 1, {}
    return found


def _matrix(call: LinkedCall) -> Span | None:
    """The matrix that a call reads; None if it reads none."""
    w: Any = call.call.args.get("w")
    if not call.call.kernel.startswith(("linear.", "experts.")) or isinstance(w, int | float):
        return None
    return w.address, w.buffer.nbytes


class Pager:
    """Keeps the weights of a program's segments within a budget of resident bytes.

    The policy `budget` evicts the least recently used segment. `pinned` keeps the first segments for good and passes
    the others through the rest, which reads less: every step uses all segments in the same order. Raises RequestError
    on systems other than Linux, and CapacityError if the budget does not hold two segments.
    """

    def __init__(self, segments: list[Segment], offload: Offload) -> None:
        if not sys.platform.startswith("linux"):
            raise RequestError(
                f"offload={offload.policy!r} works on Linux, not on {sys.platform}: leave it out", "offload"
            )
        self.segments = segments
        self._offload = offload
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._resident: OrderedDict[int, int] = OrderedDict()  # segment → bytes, in the order of use
        needed = 2 * max((s.nbytes for s in segments), default=0)
        if offload.budget < needed:
            raise CapacityError(
                f"a memory_budget of {offload.budget} bytes is too small: one part of the model and the next, which is "
                f"read ahead, take {needed}"
            )
        self._pinned, room = set[int](), offload.budget - needed
        for index, segment in enumerate(segments):
            if offload.policy == "pinned" and segment.nbytes <= room:
                self._pinned.add(index)
                room -= segment.nbytes
        self.evict_all()

    @property
    def resident(self) -> int:
        """Bytes that have been read and not been evicted."""
        return sum(self._resident.values())

    def before(self, index: int) -> None:
        """Make room for a segment and the next one, and prefetch that."""
        ahead = (index + 1) % len(self.segments)
        for wanted in (index, ahead):
            if wanted not in self._resident:
                self._make_room(self.segments[wanted].nbytes, keep={index, ahead})
                self._resident[wanted] = self.segments[wanted].nbytes
                self._advise(wanted, mmap.MADV_WILLNEED)
        self._resident.move_to_end(index)

    def after(self, index: int) -> None:
        """A segment was used: evict it if the policy says so."""
        if self._offload.policy == "pinned" and index not in self._pinned:
            self._evict(index)

    def _make_room(self, nbytes: int, keep: set[int]) -> None:
        for oldest in list(self._resident):
            if self.resident + nbytes <= self._offload.budget:
                return
            if oldest not in keep and oldest not in self._pinned:
                self._evict(oldest)

    def evict_all(self) -> None:
        """Evict all segments: checking the file may have read all of it."""
        for index in range(len(self.segments)):
            self._evict(index)

    def _evict(self, index: int) -> None:
        self._resident.pop(index, None)
        self._advise(index, mmap.MADV_DONTNEED)

    def _advise(self, index: int, advice: int) -> None:
        for address, nbytes in self.segments[index].weights:
            first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages: a neighbour's stay
            last = address + nbytes & -mmap.PAGESIZE
            if last > first:
                self._libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice)
