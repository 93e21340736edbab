"""GGUF files ⇄ metadata and named tensors. Knows the file format, and no model."""

from typing import TYPE_CHECKING, Any

from llamina.gguf.encode import kind_of
from llamina.gguf.fingerprint import fingerprint
from llamina.gguf.reader import GGUF
from llamina.gguf.shards import open_model, write_shards
from llamina.gguf.tensor import ComputedTensor, Tensor
from llamina.gguf.types import TENSOR_TYPES, ByteOrder, Kind, TensorType, Value, ValueType, tensor_type
from llamina.gguf.writer import write

if TYPE_CHECKING:
    from llamina.gguf.remote import open_url


def __getattr__(name: str) -> Any:
    """Import `open_url` on first use: it needs an HTTP client, which most programs do not."""
    if name == "open_url":
        from llamina.gguf.remote import open_url

        return open_url
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "GGUF",
    "TENSOR_TYPES",
    "ByteOrder",
    "ComputedTensor",
    "Kind",
    "Tensor",
    "TensorType",
    "Value",
    "ValueType",
    "fingerprint",
    "kind_of",
    "open_model",
    "open_url",
    "tensor_type",
    "write",
    "write_shards",
]
