"""Offloading: weights are mapped from the file, prefetched before they are used and evicted after.

Threads walk a segment of the program at a time; in between `madvise` tells the operating system what to read and drop.
"""

import ctypes
import mmap
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llamina.backends.cpu.runtime.call import LinkedCall
from llamina.errors import CapacityError, RequestError
from llamina.ops import Weight
from llamina.plan import Plan
from llamina.plan.fusion import MATRICES

Span = tuple[int, int]  # address, bytes
Pin = int | Literal["embeddings", "output"]  # a layer, those below 0 counted from the end
LEAST = 1 << 20  # bytes of weights from which a segment is worth a stop


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights are read from the file when they are needed, so that at most `budget` bytes of them are resident."""

    policy: Literal["budget", "pinned"]
    budget: int
    pin: tuple[Pin, ...] = ()  # what stays in memory before anything else, with the policy "pinned"
    prefetch: int = 1  # segments that are read ahead


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


def pinned_spans(plan: Plan, pin: Sequence[Pin]) -> dict[int, int]:
    """Addresses and bytes of the weights that are to stay. Raises RequestError for a layer that there is not."""
    uses: dict[str, tuple[Weight, set[str]]] = {}
    for step in plan.steps:
        for w in step.weights if step.op in MATRICES else ():
            uses.setdefault(w.name, (w, set()))[1].add(step.op)
    layers = 1 + max((layer for name in uses if (layer := layer_of(name)) is not None), default=-1)
    for one in pin:
        if isinstance(one, int) and not -layers <= one < layers:
            raise RequestError(f"pin has layer {one}: the model has layers 0 to {layers - 1}", "pin")
    wanted = {one % layers if isinstance(one, int) else one for one in pin}
    found: dict[int, int] = {}
    for name, (w, ops) in uses.items():
        layer = layer_of(name)
        if layer in wanted or (layer is None and wanted & {"embeddings" if op == "embed" else "output" for op in ops}):
            found[int(w.data.ctypes.data)] = w.data.nbytes
    return found


def layer_of(name: str) -> int | None:
    """The layer that a tensor belongs to, by its name; None if it is of none."""
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else None


class Pager:
    """Keeps the weights of a program's segments within a budget of resident bytes.

    The policy `budget` evicts the least recently used segment. `pinned` keeps some segments for good and passes the
    others through the rest, which reads less: every step uses all segments in the same order. Those with a weight of
    `pins` are kept first, then those that come first. Raises RequestError on systems other than Linux, and
    CapacityError if the budget does not hold the pins, a segment, and those that are read ahead.
    """

    def __init__(self, segments: list[Segment], offload: Offload, pins: Mapping[int, int] | None = None) -> None:
        if not sys.platform.startswith("linux"):
            raise RequestError(
                f"offload={offload.policy!r} works on Linux, not on {sys.platform}: leave it out", "offload"
            )
        self.segments = segments
        self._offload = offload
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._resident: OrderedDict[int, int] = OrderedDict()  # segment → bytes, in the order of use
        pins = pins or {}
        self._pinned = {i for i, segment in enumerate(segments) if any(at in pins for at, _ in segment.weights)}
        paged = {at for segment in segments for at, _ in segment.weights}
        self._kept = tuple((at, nbytes) for at, nbytes in pins.items() if at not in paged)  # embeddings of their own
        passing = max((s.nbytes for i, s in enumerate(segments) if i not in self._pinned), default=0)
        needed, kept = (1 + offload.prefetch) * passing, sum(n for _, n in self._kept)
        kept += sum(segments[i].nbytes for i in self._pinned)
        room = offload.budget - needed - kept
        if room < 0:
            ahead = "the next, which is" if offload.prefetch == 1 else f"the next {offload.prefetch}, which are"
            raise CapacityError(
                f"a memory_budget of {offload.budget} bytes is too small: one part of the model and {ahead} "
                f"read ahead, take {needed}" + (f", and what is pinned {kept}: give more, or pin less" if kept else "")
            )
        for index, segment in enumerate(segments):
            if offload.policy == "pinned" and index not in self._pinned and segment.nbytes <= room:
                self._pinned.add(index)
                room -= segment.nbytes
        self.evict_all()
        self._advise(self._kept, mmap.MADV_WILLNEED)

    @property
    def resident(self) -> int:
        """Bytes that have been read and not been evicted."""
        return sum(self._resident.values()) + sum(nbytes for _, nbytes in self._kept)

    @property
    def pinned(self) -> frozenset[int]:
        """The segments that stay in memory."""
        return frozenset(self._pinned)

    def before(self, index: int) -> None:
        """Make room for a segment and those after it that are prefetched, and prefetch them."""
        near = [(index + n) % len(self.segments) for n in range(1 + self._offload.prefetch)]
        for wanted in dict.fromkeys(near):
            if wanted not in self._resident:
                self._make_room(self.segments[wanted].nbytes, keep=set(near))
                self._resident[wanted] = self.segments[wanted].nbytes
                self._advise(self.segments[wanted].weights, mmap.MADV_WILLNEED)
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
        self._advise(self.segments[index].weights, mmap.MADV_DONTNEED)

    def _advise(self, spans: Iterable[Span], advice: int) -> None:
        for address, nbytes in spans:
            first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages: a neighbour's stay
            last = address + nbytes & -mmap.PAGESIZE
            if last > first:
                self._libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice)
