"""Scales of blocks: where they are, and how many are NaN or infinite, as ggml's `ggml_validate_row_data` counts."""

import numpy as np
import numpy.typing as npt

from llamina.gguf.types import TensorType
from llamina.quant.bits import U8

HALVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Q1_0", "Q2_0", "Q4_0", "Q5_0", "Q8_0", "Q8_1", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **{"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)},
}
"""Offsets of the float16 scales in a block; formats that are not here have other scales, or none."""

# Bits of the exponent of plain formats, which are all set in NaN and infinity.
_EXPONENTS: dict[str, tuple[type[np.unsignedinteger], int]] = {
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F32": (np.uint32, 0x7F800000),
    "F64": (np.uint64, 0x7FF0000000000000),
}
CHUNK = 1 << 22  # bytes that are looked at together


def count_not_finite(data: U8, kind: TensorType) -> int:
    """How many blocks of a tensor have a scale that is NaN or infinite; of a plain format, how many values are."""
    step = max(1, CHUNK // kind.nbytes)
    blocks = data.reshape(-1, kind.nbytes)
    return sum(int(np.count_nonzero(_odd(blocks[at : at + step], kind))) for at in range(0, len(blocks), step))


def _odd(blocks: U8, kind: TensorType) -> npt.NDArray[np.bool_]:
    odd: npt.NDArray[np.bool_] = np.zeros(len(blocks), np.bool_)
    if kind.name in _EXPONENTS:
        dtype, bits = _EXPONENTS[kind.name]
        odd = (blocks.reshape(-1).view(dtype) & dtype(bits)) == bits
    elif kind.name == "Q8_K":  # a float32 at the beginning
        odd = (blocks[:, 3] & 0x7F == 0x7F) & (blocks[:, 2] & 0x80 == 0x80)
    elif kind.name == "MXFP4":
        odd = blocks[:, 0] == 0xFF
    elif kind.name == "IQ1_M":  # the upper nibbles of the last four words are a float16, the last one its highest bits
        odd = (blocks[:, 55] & 0x70 == 0x70) & (blocks[:, 53] & 0xC0 == 0xC0)
    for at in HALVES.get(kind.name, ()):
        odd |= blocks[:, at + 1] & 0x7C == 0x7C
    return odd
