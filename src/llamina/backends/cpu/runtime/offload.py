"""Weights that do not stay in memory: mapped from the file, read ahead of their use and given back after it.

Threads walk a segment of the plan at a time; in between the operating system is told what comes next and what may go.
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
LEAST = 1 << 20  # bytes of weights from which a segment is worth a pause


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
    """The program cut behind groups that read weights, as soon as there are LEAST bytes of them."""
    found: list[Segment] = []
    start, weights = 0, dict[int, int]()
    for index, calls in enumerate(groups):
        weights.update(span for call in calls if (span := _matrix(call)))
        if sum(weights.values()) >= LEAST or index + 1 == len(groups):
            found.append(Segment(start, index + 1, tuple(weights.items())))
            start, weights = index + 1, {}
    return found


def _matrix(call: LinkedCall) -> Span | None:
    """The matrix that a call reads from beginning to end."""
    w: Any = call.call.args.get("w")
    if not call.call.kernel.startswith(("linear.", "experts.")) or isinstance(w, int | float):
        return None
    return w.address, w.buffer.nbytes


class Pager:
    """Keeps the weights of a program's segments within a budget of resident bytes.

    `budget` gives back what was used longest ago. `pinned` keeps the first segments for good and passes the others
    through what is left, which reads less: a walk comes by everything in the same order every time.
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
        self.give_back_all()

    @property
    def resident(self) -> int:
        """Bytes that have been read and not been given back."""
        return sum(self._resident.values())

    def before(self, index: int) -> None:
        """Make room for a segment and the next one, and begin to read that."""
        ahead = (index + 1) % len(self.segments)
        for wanted in (index, ahead):
            if wanted not in self._resident:
                self._make_room(self.segments[wanted].nbytes, keep={index, ahead})
                self._resident[wanted] = self.segments[wanted].nbytes
                self._advise(wanted, mmap.MADV_WILLNEED)
        self._resident.move_to_end(index)

    def after(self, index: int) -> None:
        if self._offload.policy == "pinned" and index not in self._pinned:
            self._give_back(index)

    def _make_room(self, nbytes: int, keep: set[int]) -> None:
        for oldest in list(self._resident):
            if self.resident + nbytes <= self._offload.budget:
                return
            if oldest not in keep and oldest not in self._pinned:
                self._give_back(oldest)

    def give_back_all(self) -> None:
        """Checking a file may have read all of it."""
        for index in range(len(self.segments)):
            self._give_back(index)

    def _give_back(self, index: int) -> None:
        self._resident.pop(index, None)
        self._advise(index, mmap.MADV_DONTNEED)

    def _advise(self, index: int, advice: int) -> None:
        for address, nbytes in self.segments[index].weights:
            first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages: a neighbour's stay
            last = address + nbytes & -mmap.PAGESIZE
            if last > first:
                self._libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice)
