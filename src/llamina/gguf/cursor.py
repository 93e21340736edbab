"""Reads numbers, strings and arrays of a GGUF header; every length is checked against the file before it is used."""

import struct
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from llamina.errors import ModelFileError, UnsupportedModel
from llamina.gguf.types import NUMBERS, Value, ValueType

LAST_VERSION = 3
MAX_NESTING = 8
MAX_LENGTH = 1 << 30  # of a string in bytes, of an array in elements; llama.cpp's limits
BLOCK = 1 << 20  # bytes of strings that are copied at a time
MAX_NAME = (1 << 16) - 1  # bytes of a metadata key, by the specification, and of a tensor's name


class Incomplete(ModelFileError):
    """The header continues after the available bytes; at least `needed` bytes are necessary."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class Cursor:
    """A read position in a file of `size` bytes, of which `data` has the first ones, or all."""

    def __init__(self, source: str, data: memoryview, size: int) -> None:
        self.source, self.data, self.size = source, data, size
        self.position = 0
        self.order: Literal["<", ">"] = "<"
        self.version = self._start()
        self.length = "I" if self.version == 1 else "Q"  # struct code of a count
        self.width = struct.calcsize("<" + self.length)

    def _start(self) -> int:
        """Read magic and version and return the version; one with empty low bytes means a big-endian file."""
        self.need(min(4, self.size), "the magic")
        magic = bytes(self.data[:4])
        if magic != b"GGUF":
            raise ModelFileError(f"{self.source}: byte 0: {magic!r} instead of b'GGUF': this is not a GGUF file")
        self.position = 4
        version = self.number("I")
        if version & 0xFFFF == 0:
            self.position, self.order = 4, ">"
            version = self.number("I")
        if version == 0:
            self.fail("GGUF version 0", 4)
        if version > LAST_VERSION:
            newer = f"GGUF version {version}, newer than {LAST_VERSION}"
            raise UnsupportedModel(f"{self.source}: byte 4: {newer}: upgrade llamina, or get the file again")
        return version

    def fail(self, fact: str, at: int) -> NoReturn:
        """Raise ModelFileError: the file is damaged."""
        raise ModelFileError(f"{self.source}: byte {at}: {fact}: the file is damaged, get it again")

    def need(self, count: int, what: str) -> None:
        """Check that `count` more bytes exist. Raises ModelFileError, or Incomplete if only `data` is too short."""
        end = self.position + count
        if end > self.size:
            self.fail(f"{what} takes {count} bytes and {self.size - self.position} are left", self.position)
        if end > len(self.data):
            raise Incomplete(f"{self.source}: byte {self.position}: {what} has not been read yet", end)

    def number(self, code: str) -> int:
        """Read one integer, by its struct code."""
        size = struct.calcsize(self.order + code)
        self.need(size, "a number")
        value: int = struct.unpack_from(self.order + code, self.data, self.position)[0]
        self.position += size
        return value

    def count(self, what: str, min_bytes: int, maximum: int = MAX_LENGTH) -> int:
        """Read the number of following items. Raises if so many, each of `min_bytes` or more, cannot be in the file."""
        at = self.position
        count = self.number(self.length)
        if count > maximum:
            self.fail(f"{count} {what}, where {maximum} is the maximum", at)
        self.need(count * min_bytes, f"{count} {what}")
        return count

    def string(self, max_bytes: int = MAX_LENGTH) -> str:
        """Read a string; bytes that are not UTF-8 become lone surrogates."""
        length = self.count("bytes of a string", 1, max_bytes)
        text = str(self.data[self.position : self.position + length], "utf-8", "surrogateescape")
        self.position += length
        return text

    def strings(self, count: int) -> list[Value]:
        """Read `count` strings. A hot loop for large vocabularies: it slices copied blocks, not the memoryview."""
        length_at, width = struct.Struct(self.order + self.length).unpack_from, self.width
        texts: list[Value] = []
        while len(texts) < count:
            block, start = bytes(self.data[self.position : self.position + BLOCK]), width
            for _ in range(count - len(texts)):
                if start > len(block) or (stop := start + length_at(block, start - width)[0]) > len(block):
                    break
                texts.append(block[start:stop].decode("utf-8", "surrogateescape"))
                start = stop + width
            self.position += start - width
            if len(texts) < count:
                texts.append(self.string())  # it crosses the end of the block, or is damaged and raises
        return texts

    def value_type(self) -> ValueType:
        """Read the type of a value."""
        at = self.position
        value = self.number("I")
        if value > max(ValueType):
            self.fail(f"metadata type {value}, where {max(ValueType):d} is the last", at)
        return ValueType(value)

    def scalar(self, kind: ValueType) -> Value:
        """Read a value that is not an array."""
        if kind is ValueType.STRING:
            return self.string()
        value: Value = self.numbers(kind, 1)[0].item()
        return value

    def numbers(self, kind: ValueType, count: int) -> npt.NDArray[Any]:
        """Read `count` numbers of a type into an array of native byte order."""
        dtype = NUMBERS[kind]
        size = count * dtype.itemsize
        self.need(size, f"{count} {kind.name}")
        raw = np.frombuffer(self.data[self.position : self.position + size], np.uint8)
        self.position += size
        return raw.astype(dtype) if dtype.itemsize == 1 else raw.view(dtype.newbyteorder(self.order)).astype(dtype)

    def array(self, element: ValueType, depth: int = 1) -> Value:
        """Read the elements of an array whose element type has been read."""
        if element in NUMBERS:
            return self.numbers(element, self.count(f"{element.name} elements", NUMBERS[element].itemsize))
        if element is ValueType.STRING:
            return self.strings(self.count("strings", self.width))
        if depth == MAX_NESTING:
            self.fail(f"arrays nested more than {MAX_NESTING} deep", self.position)
        count = self.count("arrays", 4 + self.width)
        return [self.array(self.value_type(), depth + 1) for _ in range(count)]
