"""Encodes metadata values: the type of each unless one is given, and its bytes."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeGuard

import numpy as np

from llamina.errors import RequestError
from llamina.gguf.cursor import MAX_NAME, MAX_NESTING
from llamina.gguf.types import NUMBERS, ByteOrder, Kind, ValueType

_OF_DTYPE = {dtype: kind for kind, dtype in NUMBERS.items()}


def kind_of(key: str, value: object) -> Kind:
    """Return the kind that a value is written as by default; `key` is for the error message. Raises RequestError.

    Scalars: an int is UINT32 where it fits, else INT32, INT64, UINT64; a float is FLOAT32. Arrays: NumPy's
    dtypes stay; ints are INT32 where all fit, else UINT32, INT64, UINT64; an empty list holds strings.
    """
    return Kind(ValueType.ARRAY, _element(key, value)) if _is_array(value) else Kind(_scalar(key, value))


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is written as an array; to the type checker a NumPy array is a sequence here."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _scalar(key: str, value: object) -> ValueType:
    """Return the type of a value that is not an array."""
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, np.generic | np.ndarray) and value.dtype in _OF_DTYPE:
        return _OF_DTYPE[value.dtype]
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, int):
        return _narrowest(key, [value], (ValueType.UINT32, ValueType.INT32, ValueType.INT64, ValueType.UINT64))
    if isinstance(value, float):
        return ValueType.FLOAT32
    raise RequestError(f"{key} is a {type(value).__name__}, which GGUF metadata cannot hold", "metadata")


def _element(key: str, values: Sequence[Any]) -> ValueType:
    """Return the type of the elements of an array."""
    if isinstance(values, np.ndarray) and values.dtype.newbyteorder("=") in _OF_DTYPE:
        return ValueType.ARRAY if values.ndim > 1 else _OF_DTYPE[values.dtype.newbyteorder("=")]
    if all(isinstance(item, str) for item in values):
        return ValueType.STRING
    if all(_is_array(item) for item in values):
        return ValueType.ARRAY
    if all(_is_integer(item) for item in values):
        return _narrowest(key, values, (ValueType.INT32, ValueType.UINT32, ValueType.INT64, ValueType.UINT64))
    if all(_is_integer(item) or type(item) is float for item in values):
        return ValueType.FLOAT32
    kinds = {_scalar(key, item) for item in values}
    if len(kinds) > 1:
        mixed = ", ".join(sorted(kind.name for kind in kinds))
        raise RequestError(f"{key} mixes {mixed} in one array: make them one type", "metadata")
    return kinds.pop()


def _narrowest(key: str, values: Sequence[int], choices: Sequence[ValueType]) -> ValueType:
    """Return the first of the types that holds all values. Raises RequestError if none does."""
    low, high = min(values), max(values)
    for kind in choices:
        limits = np.iinfo(NUMBERS[kind])
        if limits.min <= low and high <= limits.max:
            return kind
    raise RequestError(f"{key} has integers from {low} to {high}, which no 64-bit type holds", "metadata")


class Encoder:
    """Encodes numbers, strings and values for one version and byte order; each method returns bytes."""

    def __init__(self, version: int, byteorder: ByteOrder) -> None:
        self.order: Literal["<", ">"] = "<" if byteorder == "little" else ">"
        self.number: Callable[[int], bytes] = struct.Struct(self.order + "I").pack
        self.long: Callable[[int], bytes] = struct.Struct(self.order + "Q").pack
        self.version = version

    def length(self, count: int) -> bytes:
        """Encode a count or length: 32 bits in version 1, 64 since."""
        if self.version > 1:
            return self.long(count)
        if count >= 1 << 32:
            raise RequestError(f"{count} does not fit the 32-bit lengths of GGUF version 1: write 3", "version")
        return self.number(count)

    def string(self, text: str) -> bytes:
        """Encode length and bytes; the reader's lone surrogates become the bytes they stand for."""
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise RequestError(f"{text!r} has no UTF-8 bytes: {error.reason}", "metadata") from None
        return self.length(len(raw)) + raw

    def name(self, text: str) -> bytes:
        """Encode a metadata key or the name of a tensor, of at most MAX_NAME bytes."""
        raw = self.string(text)
        if len(raw) - len(self.length(0)) > MAX_NAME:
            raise RequestError(f"the name {text[:40]!r}... is too long: at most {MAX_NAME} bytes are allowed")
        return raw

    def pair(self, key: str, value: object, kind: Kind) -> bytes:
        """Encode a key, its type and its value."""
        head = self.name(key) + self.number(kind.type)
        if kind.type is not ValueType.ARRAY:
            return head + self.elements(key, [value], kind.type)
        if kind.element is None or not _is_array(value):
            raise RequestError(f"{key} is {value!r}, which cannot be written as {kind}", "metadata_types")
        return head + self.array(key, value, kind.element)

    def array(self, key: str, values: Sequence[Any], element: ValueType, depth: int = 1) -> bytes:
        """Encode the type of the elements, their number, and the elements."""
        if depth > MAX_NESTING:
            raise RequestError(f"{key} is nested more than {MAX_NESTING} deep: flatten it", "metadata")
        head = self.number(element) + self.length(len(values))
        if element is not ValueType.ARRAY:
            return head + self.elements(key, values, element)
        if not all(_is_array(item) for item in values):
            raise RequestError(f"{key} has elements that are not arrays: write them as another type", "metadata_types")
        return head + b"".join([self.array(key, item, _element(key, item), depth + 1) for item in values])

    def elements(self, key: str, values: Sequence[Any], kind: ValueType) -> bytes:
        """Encode strings or numbers, one after the other."""
        if kind is not ValueType.STRING:
            return self.numbers(key, values, kind)
        if not all(isinstance(text, str) for text in values):
            raise RequestError(f"{key} is not all text: write it as another type than STRING", "metadata_types")
        return b"".join([self.string(text) for text in values])

    def numbers(self, key: str, values: Sequence[Any], kind: ValueType) -> bytes:
        """Encode numbers. Raises RequestError where the type would change a value."""
        if len(values) == 0:
            return b""
        try:
            given = np.asarray(values)
        except ValueError:  # rows of different lengths
            given = np.empty((0, 0))
        dtype = NUMBERS[kind]
        if given.ndim == 1 and given.dtype.kind in "biuf":
            with np.errstate(all="ignore"):
                stored = given.astype(dtype)
            if np.all(stored == given if dtype.kind != "f" else np.isfinite(stored) == np.isfinite(given)):
                return stored.astype(dtype.newbyteorder(self.order)).tobytes()
        raise RequestError(f"{key} holds {values!r}, which {kind.name} cannot: choose another type", "metadata_types")
