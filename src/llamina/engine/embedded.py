"""Embedding rows in a prompt, where tokens would stand: what an encoder made of a picture, or a learnt soft prompt."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from llamina.errors import RequestError

KEYS = 1 << 61  # placeholders are -1 to -KEYS


@dataclass(frozen=True, eq=False)
class Embedded:
    """`rows` [n, width] take the place of n tokens' embeddings, after the model's own scaling of these.

    `positions` [n, 3] are M-RoPE's (time, height, width), counted from the position of the first row; by default rows
    are counted like tokens. `advance` is how far the position after the rows is from that of the first: n, or one more
    than the largest of `positions`. `whole` rows are computed in one step; with `both_ways` they are, and each attends
    to all of them. Raises RequestError for wrong shapes.
    """

    rows: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int32] | None = None
    advance: int | None = None
    whole: bool = False
    both_ways: bool = False
    key: str = ""  # what they are, for the prefix cache; by default a hash of the rows

    def __post_init__(self) -> None:
        rows = np.ascontiguousarray(self.rows, np.float32)
        if rows.ndim != 2 or not rows.size:
            raise RequestError(f"rows have the shape {list(rows.shape)}: it must be [n, width]", "prompt")
        if not np.isfinite(rows).all():
            raise RequestError("rows have numbers that are infinite or none: all must be finite", "prompt")
        if self.positions is not None:
            positions = np.ascontiguousarray(self.positions, np.int32)
            if positions.shape != (len(rows), 3) or positions.min() < 0:
                shape = list(positions.shape)
                message = f"positions have the shape {shape}: it must be {[len(rows), 3]}, and none of them negative"
                raise RequestError(message, "prompt")
            object.__setattr__(self, "positions", positions)
        if self.advance is not None and self.advance < 1:
            raise RequestError(f"advance is {self.advance}: it must be at least 1", "prompt")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "whole", self.whole or self.both_ways)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def placeholders(self) -> range:
        """Negative numbers in the place of token ids, the same for the same contents: prefixes are shared by them."""
        found = hashlib.blake2b(self.key.encode() if self.key else self.rows.tobytes(), digest_size=8)
        if self.positions is not None:
            found.update(self.positions.tobytes())
        if self.both_ways:
            found.update(b"both ways")
        first = -1 - int.from_bytes(found.digest(), "little") % (KEYS - len(self))
        return range(first, first - len(self), -1)

    @property
    def distance(self) -> int:
        if self.advance is not None:
            return self.advance
        return len(self) if self.positions is None else int(self.positions.max()) + 1


class Prompt(list[int]):
    """Token ids, with placeholders where rows stand; `embedded` has the rows by the position of the first."""

    def __init__(self, parts: Iterable[int | Embedded] = ()) -> None:
        super().__init__()
        self.embedded: dict[int, Embedded] = dict(parts.embedded) if isinstance(parts, Prompt) else {}
        for part in parts:
            if isinstance(part, Embedded):
                self.embedded[len(self)] = part
                self.extend(part.placeholders)
            else:
                self.append(part)


def join(*parts: Iterable[int]) -> list[int]:
    """Prompts one after the other, rows included."""
    whole = Prompt()
    for part in parts:
        if isinstance(part, Prompt):
            whole.embedded |= {len(whole) + at: rows for at, rows in part.embedded.items()}
        whole.extend(part)
    return whole if whole.embedded else list(whole)


class Layout:
    """Where a prompt's rows stand: what a slice of the sequence has of them, and M-RoPE's positions."""

    def __init__(self, embedded: Mapping[int, Embedded]) -> None:
        self._parts = sorted(embedded.items())
        self.both_ways = any(part.both_ways for _, part in self._parts)
        self.rotary = any(part.positions is not None or part.advance is not None for _, part in self._parts)

    def rows(self, start: int, stop: int) -> list[tuple[int, npt.NDArray[np.float32]]]:
        """The rows of [start, stop), each array with its offset from `start`."""
        found = []
        for at, part in self._parts:
            first, last = max(at, start), min(at + len(part), stop)
            if first < last:
                found.append((first - start, part.rows[first - at : last - at]))
        return found

    def positions(self, start: int, stop: int) -> npt.NDArray[np.int32] | None:
        """M-RoPE's positions of [start, stop), [3, n]; None if they are those of the tokens."""
        if not self.rotary:
            return None
        found = np.empty((3, stop - start), np.int32)
        found[:] = np.arange(start, stop)
        for at, part in self._parts:
            place = int(at - self._saved(at))
            own = part.positions if part.positions is not None else np.arange(len(part))[:, None].repeat(3, 1)
            first, last = max(at, start), min(at + len(part), stop)
            if first < last:
                found[:, first - start : last - start] = place + own[first - at : last - at].T
            after = max(at + len(part) - start, 0)
            found[:, after:] -= len(part) - part.distance
        return found

    def until(self, start: int, stop: int) -> npt.NDArray[np.int32] | None:
        """The last position that each of [start, stop) attends to; None if that is its own."""
        if not self.both_ways:
            return None
        found = np.arange(start, stop, dtype=np.int32)
        for at, part in self._parts:
            if part.both_ways:
                found[max(at - start, 0) : max(at + len(part) - start, 0)] = at + len(part) - 1
        return found

    def _saved(self, at: int) -> int:
        """By how much positions lag behind the count of tokens before a place."""
        return sum(len(part) - part.distance for before, part in self._parts if before < at)

    def uncut(self, start: int, stop: int, most: int) -> int:
        """A stop not after `most` that cuts no whole rows: `stop`, or the nearest before it, or else behind it."""
        for at, part in self._parts:
            if part.whole and at < stop < at + len(part):
                if at > start:
                    return at
                return at + len(part) if at + len(part) <= most else start
        return stop

    def longest(self) -> int:
        """The most rows that must be computed in one step."""
        return max((len(part) for _, part in self._parts if part.whole), default=0)
