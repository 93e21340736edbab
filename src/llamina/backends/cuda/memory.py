"""Where values live on the device: buffers with lifetimes, packed into one arena, and typed places inside them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

ALIGN = 256
SIZES = {"fp32": 4, "i32": 4, "fp16": 2, "bf16": 2, "u8": 1, "i8": 1, "i64": 8, "fp64": 8}  # bytes, by Triton's names


@dataclass(eq=False, slots=True)
class Buffer:
    """Bytes of the arena, from the launch that first touches them to the last; or memory of its own (`address`)."""

    nbytes: int
    address: int = 0
    first: int = -1
    last: int = -1

    def touch(self, launch: int) -> None:
        self.first = launch if self.first < 0 else self.first
        self.last = launch


@dataclass(frozen=True, slots=True)
class Ref:
    """A pointer: a place inside a buffer, in bytes, and what kernels find there."""

    buffer: Buffer
    offset: int = 0
    type: str = "fp32"

    def at(self, elements: int) -> "Ref":
        return replace(self, offset=self.offset + elements * SIZES[self.type])

    @property
    def address(self) -> int:
        return self.buffer.address + self.offset


@dataclass(frozen=True, slots=True)
class Place:
    """A value's layout: rows × outer × inner elements of 4 bytes; `row` and `head` are strides in elements."""

    ref: Ref
    row: int
    head: int
    outer: int
    inner: int

    @property
    def contiguous(self) -> bool:
        return self.outer == 1 or self.head == self.inner

    @property
    def width(self) -> int:
        return self.outer * self.inner

    def shaped(self, shape: tuple[int, ...]) -> "Place":
        """The same elements seen in another shape; the place must be contiguous."""
        outer, inner = split_shape(shape)
        return Place(self.ref, self.row, inner, outer, inner)

    def sliced(self, start: int, inner: int) -> "Place":
        return Place(self.ref.at(start), self.row, self.head, self.outer, inner)


def split_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """(outer, inner) of a row's shape, which has at most two dimensions."""
    outer, inner = (1, 1, *shape)[-2:]
    return outer, inner


def pack(buffers: Iterable[Buffer]) -> int:
    """Give each buffer an offset (as its address) so that those alive together do not meet; the total size."""
    alive: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (b.first, -b.nbytes)):
        offset = 0
        alive = sorted((p for p in alive if p.last >= buffer.first), key=lambda p: p.address)
        for other in alive:
            if offset + buffer.nbytes <= other.address:
                break
            offset = max(offset, other.address + -(-other.nbytes // ALIGN) * ALIGN)
        buffer.address = offset
        alive.append(buffer)
        total = max(total, offset + -(-buffer.nbytes // ALIGN) * ALIGN)
    return total
