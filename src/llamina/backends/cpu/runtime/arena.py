"""Where values live: buffers with lifetimes, packed into one arena so that memory is reused within a step."""

from collections.abc import Iterable
from dataclasses import dataclass

ALIGN = 64
SLACK = 64  # kernels may read a vector past a buffer's end


@dataclass(eq=False, slots=True)
class Buffer:
    """Bytes of the arena, from the chain that first touches them to the last; or memory of its own (`address`)."""

    nbytes: int
    address: int = 0
    first: int = -1
    last: int = -1

    def touch(self, chain: int) -> None:
        self.first = chain if self.first < 0 else self.first
        self.last = chain

    def overlaps(self, other: "Buffer") -> bool:
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes


@dataclass(frozen=True, slots=True)
class Ref:
    """A place inside a buffer."""

    buffer: Buffer
    offset: int = 0

    def at(self, nbytes: int) -> "Ref":
        return Ref(self.buffer, self.offset + nbytes)

    @property
    def address(self) -> int:
        return self.buffer.address + self.offset


Argument = int | float | Ref
"""What a kernel call passes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value's layout: rows × outer × inner elements of 4 bytes; `row` and `head` are strides in bytes."""

    ref: Ref
    row: int
    head: int
    outer: int
    inner: int

    @property
    def contiguous(self) -> bool:
        return self.outer == 1 or self.head == 4 * self.inner

    @property
    def packed(self) -> bool:
        """Whether heads lie one after the other through all rows; a row of one head may be longer than it."""
        return self.outer == 1 or (self.head == 4 * self.inner and self.row == self.outer * self.head)

    def reading(self) -> dict[str, Argument]:
        """Arguments of a kernel that reads it as `x`."""
        return {"x": self.ref, "x_row": self.row, "x_head": self.head}

    def writing(self) -> dict[str, Argument]:
        """Arguments of a kernel that writes it as `out`."""
        return {"out": self.ref, "out_row": self.row, "out_head": self.head}

    def size(self) -> dict[str, Argument]:
        """Arguments of a kernel that goes through all its elements."""
        return {"outer": self.outer, "inner": self.inner}

    def shaped(self, shape: tuple[int, ...]) -> "Place":
        """The same elements seen in another shape; the place must be contiguous."""
        outer, inner = split_shape(shape)
        return Place(self.ref, self.row, 4 * inner, outer, inner)

    def sliced(self, start: int, inner: int) -> "Place":
        """`inner` elements of each head, from `start` on."""
        return Place(self.ref.at(4 * start), self.row, self.head, self.outer, inner)


def split_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """(outer, inner) of a row's shape, which has at most two dimensions."""
    return (1, *shape[-1:]) if len(shape) == 1 else shape or (1, 1)  # type: ignore[return-value]


def pack(buffers: Iterable[Buffer]) -> int:
    """Give each arena buffer an offset (as its address) so that those alive together do not meet; the total size."""
    alive: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (b.first, -b.nbytes)):
        size = -(-(buffer.nbytes + SLACK) // ALIGN) * ALIGN
        offset = 0
        alive = sorted((p for p in alive if p.last >= buffer.first), key=lambda p: p.address)
        for other in alive:
            if offset + size <= other.address:
                break
            offset = max(offset, other.address + -(-(other.nbytes + SLACK) // ALIGN) * ALIGN)
        buffer.address = offset
        alive.append(buffer)
        total = max(total, offset + size)
    return total
