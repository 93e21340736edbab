"""Where values live on the device: places inside buffers, with the type that a kernel sees there."""

from dataclasses import dataclass, replace

from llamina.backends.cpu.memory import Buffer, split_shape

SIZES = {"fp32": 4, "i32": 4, "fp16": 2, "bf16": 2, "u8": 1, "i8": 1, "i64": 8, "fp64": 8}  # bytes, by Triton's names


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
