"""How a value or a weight is divided among ranks."""

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from llamina.ops import Weight

Range = tuple[int, int]


class Origin(NamedTuple):
    """The step that began to divide, the segment of its output, and how many elements of that make one here."""

    step: int
    segment: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Segment:
    """`size` elements that are divided in whole `unit`s, as evenly as these go."""

    size: int
    unit: int
    origins: frozenset[Origin] = frozenset()

    def bounds(self, rank: int, ranks: int) -> Range:
        """The elements of a rank, from the first to the one behind the last."""
        count = self.size // self.unit
        return self.unit * (count * rank // ranks), self.unit * (count * (rank + 1) // ranks)

    def times(self, factor: Fraction) -> "Segment":
        """The same division of so many times as many elements."""
        origins = frozenset(replace_factor(origin, origin.factor / factor) for origin in self.origins)
        return Segment(int(self.size * factor), int(self.unit * factor), origins)


def replace_factor(origin: Origin, factor: Fraction) -> Origin:
    return origin._replace(factor=factor)


@dataclass(frozen=True, slots=True)
class Share:
    """A rank has some elements along one axis of each row. Segments lie one after the other, each divided by itself."""

    axis: int
    segments: tuple[Segment, ...]

    @property
    def origins(self) -> frozenset[Origin]:
        return frozenset(origin for segment in self.segments for origin in segment.origins)

    def ranges(self, rank: int, ranks: int) -> list[Range]:
        """Where a rank's elements are among all."""
        found, start = [], 0
        for segment in self.segments:
            first, last = segment.bounds(rank, ranks)
            found.append((start + first, start + last))
            start += segment.size
        return found

    def local(self, rank: int, ranks: int) -> int:
        return sum(last - first for first, last in self.ranges(rank, ranks))


Layout = Share | Literal["whole", "partial"]
"""Every rank has all of it; or a part; or all of it as a term of a sum over the ranks."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Ranges of a weight along an axis; along the last one they begin and end between blocks."""

    weight: Weight
    axis: int
    ranges: tuple[Range, ...]

    @property
    def key(self) -> Hashable:
        """The same for the same bytes."""
        return self.weight.data.ctypes.data, self.weight.shape, self.axis, self.ranges

    def named(self, suffix: str) -> Weight:
        """The weight that it makes, without its bytes."""
        w, size = self.weight, sum(last - first for first, last in self.ranges)
        shape = (*w.shape[: self.axis], size, *w.shape[self.axis + 1 :])
        return Weight(f"{w.name}{suffix}", shape, w.format, np.zeros(0, np.uint8))

    def take(self) -> npt.NDArray[np.uint8]:
        """Its bytes: where they are, if they lie together, else copied."""
        w = self.weight
        block = w.format.block if self.axis == len(w.shape) - 1 else 1
        shape = (*w.shape[:-1], w.shape[-1] // w.format.block)
        cells = w.data.reshape(-1).view(np.uint8).reshape(*shape, w.format.nbytes)
        before = (slice(None),) * self.axis
        parts = [cells[(*before, slice(first // block, last // block))] for first, last in self.ranges]
        data = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis))
        return data.reshape(-1).view(np.uint8)


def reshaped(share: Share, old: tuple[int, ...], new: tuple[int, ...]) -> Share | int | None:
    """The division of the same elements in another shape; a number if units must be multiples of it; else None.

    An axis stays as it is with those before it, or is taken apart to, or made of, heads and their dimension.
    """
    before, after = prod(old[: share.axis]), prod(old[share.axis + 1 :])
    needed: int | None = None
    for axis in range(len(new)):
        if prod(new[:axis]) != before:
            continue
        factor = Fraction(after, prod(new[axis + 1 :]))  # of the elements along the axis
        segments = tuple(segment.times(factor) for segment in share.segments)
        if all(s.unit * factor == n.unit > 0 for s, n in zip(share.segments, segments, strict=True)):
            return Share(axis, segments)
        needed = needed or (factor.denominator if factor < 1 else None)
    return needed
