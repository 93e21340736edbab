"""What the lowering and the kernels must agree on; without numba, so that a warm start stays quick."""

from llamina.backends.kv_types import KvType, row_bytes
from llamina.ops.batch import PAGE

MATRIX_FORMATS = frozenset(
    {
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
        *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0"),
    }
)
"""Formats that matrices may have: they are multiplied as they are stored."""

CHUNK = 8
"""Pages whose scores go through one softmax; a context is cut into such chunks, which threads share."""
MOST_ROWS = 64
"""(token, head) pairs that attend together."""
PARTIALS = 8 << 20
"""Bytes of the partial results of a context's chunks, at the most; tasks that would need more are not shared."""


def page_bytes(kv_type: KvType, dim: int) -> int:
    """One head's keys or values of a page of the cache."""
    return PAGE * row_bytes(kv_type, -(-dim // 8) * 8)


def partial_bytes(dim: int) -> int:
    """A chunk's partial result for one row: the weighted sum of values, the largest score and the sum of weights."""
    return 4 * ((dim + 7 & ~7) + 8)


def shared_bytes(rows: int, dim: int, context: int) -> int:
    """The partial results of all chunks of a context, and a count of those that are done."""
    return 64 + min(-(-context // (CHUNK * PAGE)) * rows * partial_bytes(dim), PARTIALS)
