"""A fingerprint of a model by its contents, independent of path, time and sharding."""

import hashlib

import numpy as np

from llamina.gguf.reader import GGUF
from llamina.gguf.tensor import Tensor
from llamina.gguf.types import Value

SAMPLE = 4096  # bytes from the beginning, the middle and the end of each tensor


def fingerprint(file: GGUF) -> str:
    """Return a hash over all metadata, the list of tensors, and samples of their data."""
    digest = hashlib.blake2b(digest_size=16)
    for key in sorted(file.metadata):
        digest.update(f"{key}={_text(file.metadata[key])}\0".encode("utf-8", "surrogateescape"))
    for name in sorted(file.tensors):
        tensor = file.tensors[name]
        digest.update(f"{name}:{tensor.type.name}{list(tensor.shape)}\0".encode("utf-8", "surrogateescape"))
        digest.update(_sample(tensor))
    return digest.hexdigest()


def _text(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.tobytes().hex()}"
    return repr(value)


def _sample(tensor: Tensor) -> bytes:
    if tensor.file is None:
        return b""
    starts = (0, (tensor.nbytes - SAMPLE) // 2, tensor.nbytes - SAMPLE)
    ends = tensor.offset + tensor.nbytes
    return b"".join(tensor.file[(at := tensor.offset + max(0, s)) : min(at + SAMPLE, ends)].tobytes() for s in starts)
