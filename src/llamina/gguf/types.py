"""Types of metadata values and of tensors, by their numbers in GGUF files."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.errors import UnsupportedModel

ByteOrder: TypeAlias = Literal["little", "big"]
Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Value: TypeAlias = "bool | int | float | str | npt.NDArray[Any] | list[Value]"


class ValueType(IntEnum):
    """The type of a metadata value, or of the elements of an array."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a metadata value and, for an array, the type of its elements.

    Deeper levels are not recorded: an array inside an array is a NumPy array, which has a dtype, or a list.
    """

    type: ValueType
    element: ValueType | None = None

    def __str__(self) -> str:
        return self.type.name if self.element is None else f"{self.type.name}[{self.element.name}]"


# The dtype of every numeric value type; BOOL is one byte, true if not zero.
NUMBERS: dict[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype(np.uint8),
    ValueType.INT8: np.dtype(np.int8),
    ValueType.UINT16: np.dtype(np.uint16),
    ValueType.INT16: np.dtype(np.int16),
    ValueType.UINT32: np.dtype(np.uint32),
    ValueType.INT32: np.dtype(np.int32),
    ValueType.FLOAT32: np.dtype(np.float32),
    ValueType.BOOL: np.dtype(np.bool_),
    ValueType.UINT64: np.dtype(np.uint64),
    ValueType.INT64: np.dtype(np.int64),
    ValueType.FLOAT64: np.dtype(np.float64),
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """How tensor elements are stored: `nbytes` bytes hold a block of `block` consecutive elements of a row."""

    id: int
    name: str
    block: int
    nbytes: int

    def size(self, shape: Sequence[int]) -> int:
        """Return the size in bytes of a tensor whose last dimension is a multiple of the block."""
        return prod(shape) // self.block * self.nbytes


TENSOR_TYPES: dict[int, TensorType] = {
    kind.id: kind
    for kind in (
        TensorType(0, "F32", 1, 4),
        TensorType(1, "F16", 1, 2),
        TensorType(2, "Q4_0", 32, 18),
        TensorType(3, "Q4_1", 32, 20),
        TensorType(6, "Q5_0", 32, 22),
        TensorType(7, "Q5_1", 32, 24),
        TensorType(8, "Q8_0", 32, 34),
        TensorType(9, "Q8_1", 32, 36),
        TensorType(10, "Q2_K", 256, 84),
        TensorType(11, "Q3_K", 256, 110),
        TensorType(12, "Q4_K", 256, 144),
        TensorType(13, "Q5_K", 256, 176),
        TensorType(14, "Q6_K", 256, 210),
        TensorType(15, "Q8_K", 256, 292),
        TensorType(16, "IQ2_XXS", 256, 66),
        TensorType(17, "IQ2_XS", 256, 74),
        TensorType(18, "IQ3_XXS", 256, 98),
        TensorType(19, "IQ1_S", 256, 50),
        TensorType(20, "IQ4_NL", 32, 18),
        TensorType(21, "IQ3_S", 256, 110),
        TensorType(22, "IQ2_S", 256, 82),
        TensorType(23, "IQ4_XS", 256, 136),
        TensorType(24, "I8", 1, 1),
        TensorType(25, "I16", 1, 2),
        TensorType(26, "I32", 1, 4),
        TensorType(27, "I64", 1, 8),
        TensorType(28, "F64", 1, 8),
        TensorType(29, "IQ1_M", 256, 56),
        TensorType(30, "BF16", 1, 2),
        TensorType(34, "TQ1_0", 256, 54),
        TensorType(35, "TQ2_0", 256, 66),
        TensorType(39, "MXFP4", 32, 17),
        TensorType(40, "NVFP4", 64, 36),
        TensorType(41, "Q1_0", 128, 18),
        TensorType(42, "Q2_0", 64, 18),
    )
}

_BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}

# Ids in old files that ggml no longer reads.
_REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def tensor_type(key: int | str) -> TensorType:
    """Return the type of a ggml id, or of a name in any case. Raises UnsupportedModel if there is none."""
    kind = TENSOR_TYPES.get(key) if isinstance(key, int) else _BY_NAME.get(key.upper())
    if kind is not None:
        return kind
    if isinstance(key, int) and key in _REMOVED:
        raise UnsupportedModel(f"tensor type {key} ({_REMOVED[key]}) was removed from ggml: requantize the model")
    raise UnsupportedModel(f"tensor type {key!r} is unknown: the known ones are {', '.join(_BY_NAME)}")
