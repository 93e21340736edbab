"""The types of keys and values in the KV cache, and how many bytes they take. Without NumPy, for the command line."""

from typing import Literal, get_args

KvType = Literal["f16", "f32", "bf16", "q8_0", "q4_0", "fp8"]
KV_TYPES: tuple[KvType, ...] = get_args(KvType)  # the default first
FLOATS = {"f16": 2, "f32": 4, "bf16": 2}  # bytes of an element
BLOCKS = {"q8_0": 34, "q4_0": 18}  # bytes of a block of 32


def row_bytes(kind: KvType, dim: int) -> int:
    """Bytes of `dim` elements of one position and head in the canonical layout (`base.Tensor`)."""
    if kind in FLOATS:
        return FLOATS[kind] * dim
    return 2 + dim if kind == "fp8" else -(-dim // 32) * BLOCKS[kind]
