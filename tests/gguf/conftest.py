"""Files to read and write in the tests of llamina.gguf."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamina.gguf import GGUF, Kind, ValueType, tensor_type, write

SCALARS: dict[str, tuple[ValueType, Any]] = {
    "u8": (ValueType.UINT8, 255),
    "i8": (ValueType.INT8, -128),
    "u16": (ValueType.UINT16, 65535),
    "i16": (ValueType.INT16, -32768),
    "u32": (ValueType.UINT32, 2**32 - 1),
    "i32": (ValueType.INT32, -(2**31)),
    "f32": (ValueType.FLOAT32, 0.5),
    "bool": (ValueType.BOOL, True),
    "string": (ValueType.STRING, "héllo \N{LLAMA}"),
    "u64": (ValueType.UINT64, 2**64 - 1),
    "i64": (ValueType.INT64, -(2**63)),
    "f64": (ValueType.FLOAT64, 1e-300),
}


class Contents:
    """Metadata of every type, and tensors of plain and block types with random data."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {"general.architecture": "llama"}
        self.kinds = {"general.architecture": Kind(ValueType.STRING)}
        for name, (kind, value) in SCALARS.items():
            self.metadata[name], self.kinds[name] = value, Kind(kind)
            array = [value, value] if kind is ValueType.STRING else np.array([value, 0, value], name_dtype(kind))
            self.metadata[f"{name}s"], self.kinds[f"{name}s"] = array, Kind(ValueType.ARRAY, kind)
        self.metadata["nested"] = [
            np.array([1, 2], np.int16),
            ["a", "b\udcff"],
            [["deep"], np.zeros(0, np.int8)],
        ]
        self.metadata["none"] = np.zeros(0, np.float32)
        self.kinds["nested"] = Kind(ValueType.ARRAY, ValueType.ARRAY)
        self.kinds["none"] = Kind(ValueType.ARRAY, ValueType.FLOAT32)
        rng = np.random.default_rng(1)
        self.tensors = [
            (name, shape, tensor_type(kind), rng.bytes(tensor_type(kind).size(shape)))
            for name, shape, kind in [
                ("token_embd.weight", (3, 32), "Q8_0"),
                ("norm", (5,), "F32"),
                ("blk.0.ffn", (2, 2, 1, 256), "Q4_K"),
                ("scalar", (), "F16"),
                ("ids", (2, 3), "I64"),
            ]
        ]

    def check(self, file: GGUF) -> None:
        """Assert that a file holds exactly this."""
        assert list(file.metadata) == list(self.metadata)
        assert file.metadata_types == self.kinds
        for key, value in self.metadata.items():
            assert_same(file.metadata[key], value)
        assert list(file.tensors) == [name for name, *_ in self.tensors]
        for name, shape, kind, data in self.tensors:
            tensor = file.tensors[name]
            assert (tensor.name, tensor.shape, tensor.type, tensor.nbytes) == (name, shape, kind, len(data))
            assert tensor.data.tobytes() == data


def name_dtype(kind: ValueType) -> str:
    """NumPy's name of a value type that is a number."""
    return kind.name.lower()


def assert_same(found: Any, expected: Any) -> None:
    """Equal values of equal types, down to the dtypes."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.fixture(scope="session")
def contents() -> Contents:
    return Contents()


@pytest.fixture
def small(tmp_path: Path, contents: Contents) -> Path:
    """A small file with everything in it."""
    path = tmp_path / "small.gguf"
    write(path, contents.metadata, contents.tensors, metadata_types=contents.kinds)
    return path


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], None]:
    """Assert that two values are equal, down to the types."""
    return assert_same
