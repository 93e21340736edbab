"""Parses the header of a GGUF file: metadata, and the list of tensors, checked against the size of the file.

    magic "GGUF" · version u32 · tensors n · pairs n
    pairs × (key, type u32, value)
    tensors × (name, dimensions u32, dimensions × n, type u32, offset u64)
    padding to the alignment · data

A string is its length n and its bytes. An array is the type of its elements u32, their number n, and the
elements. `n` is u32 in version 1 and u64 since.
"""

from dataclasses import dataclass, replace
from math import prod

from llamina.errors import UnsupportedModel
from llamina.gguf.cursor import MAX_NAME, Cursor
from llamina.gguf.types import ByteOrder, Kind, TensorType, Value, ValueType, tensor_type

DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as the header lists it; `offset` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of a file before its data."""

    version: int
    byteorder: ByteOrder
    alignment: int
    metadata: dict[str, Value]
    kinds: dict[str, Kind]
    entries: list[Entry]


def parse(source: str, data: memoryview, size: int) -> Header:
    """Return the header of a file of `size` bytes that begins with `data`; `source` is its name in errors.

    Raises ModelFileError for a damaged file, Incomplete if `data` is too short, UnsupportedModel for unknown types.
    """
    cursor = Cursor(source, data, size)
    n_tensors = cursor.count("tensors", 16 + cursor.width)
    metadata, kinds, alignment = _pairs(cursor)
    entries = _entries(cursor, n_tensors, alignment)
    return Header(cursor.version, "little" if cursor.order == "<" else "big", alignment, metadata, kinds, entries)


def _pairs(cursor: Cursor) -> tuple[dict[str, Value], dict[str, Kind], int]:
    """Read the metadata; return it with the kind of each value, and the alignment."""
    metadata: dict[str, Value] = {}
    kinds: dict[str, Kind] = {}
    alignment = DEFAULT_ALIGNMENT
    for _ in range(cursor.count("metadata pairs", cursor.width + 5)):
        at = cursor.position
        key = cursor.string(MAX_NAME)
        if key == "" or key in metadata:
            cursor.fail(f"the metadata key {key!r} occurs twice" if key else "a metadata key is empty", at)
        kind = cursor.value_type()
        element = cursor.value_type() if kind is ValueType.ARRAY else None
        metadata[key] = cursor.scalar(kind) if element is None else cursor.array(element)
        kinds[key] = Kind(kind, element)
        if key == "general.alignment":
            alignment = _alignment(cursor, metadata[key], kinds[key], at)
    return metadata, kinds, alignment


def _alignment(cursor: Cursor, value: Value, kind: Kind, at: int) -> int:
    """Return the alignment of tensor offsets. Raises ModelFileError unless it is a power of two."""
    if kind != Kind(ValueType.UINT32) or not isinstance(value, int):
        cursor.fail(f"general.alignment is {kind}, not UINT32", at)
    if value.bit_count() != 1:
        cursor.fail(f"general.alignment is {value}, not a power of two", at)
    return value


def _entries(cursor: Cursor, count: int, alignment: int) -> list[Entry]:
    """Read the list of tensors; return it with offsets from the start of the file.

    Raises ModelFileError if data is outside the file or overlaps another tensor's.
    """
    listed: dict[str, tuple[int, Entry]] = {}
    for _ in range(count):
        at = cursor.position
        entry = _entry(cursor, alignment)
        if entry.name in listed:
            cursor.fail(f"the tensor {entry.name!r} occurs twice", at)
        listed[entry.name] = (at, entry)
    start = -(-cursor.position // alignment) * alignment
    end = start
    for at, entry in sorted(listed.values(), key=lambda item: item[1].offset):
        begin, size = start + entry.offset, entry.type.size(entry.shape)
        if begin + size > cursor.size:
            where = f"is at bytes {begin} to {begin + size} of a file of {cursor.size}"
            cursor.fail(f"the data of {entry.name!r} {where}", at)
        if begin < end:
            cursor.fail(f"the data of {entry.name!r} at byte {begin} overlaps another tensor's", at)
        end = begin + size
    return [replace(entry, offset=start + entry.offset) for _, entry in listed.values()]


def _entry(cursor: Cursor, alignment: int) -> Entry:
    """Read one tensor of the list; its offset is from the start of the data."""
    at = cursor.position
    name = cursor.string(MAX_NAME)
    n_dimensions = cursor.number("I")
    if n_dimensions > MAX_DIMENSIONS:
        cursor.fail(f"the tensor {name!r} has {n_dimensions} dimensions, where {MAX_DIMENSIONS} is the maximum", at)
    shape = tuple(reversed([cursor.number(cursor.length) for _ in range(n_dimensions)]))
    type_id = cursor.number("I")
    try:
        kind = tensor_type(type_id)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{cursor.source}: byte {at}: {name!r}: {error}") from None
    if prod(shape) == 0 or prod(shape[-1:]) % kind.block:
        cursor.fail(f"the tensor {name!r} has shape {shape}, which {kind.name} cannot hold", at)
    offset = cursor.number("Q")
    if offset % alignment:
        cursor.fail(f"the tensor {name!r} has offset {offset}, not a multiple of {alignment}", at)
    return Entry(name, shape, kind, offset)
