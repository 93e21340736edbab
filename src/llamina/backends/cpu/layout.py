"""What the lowering and the kernels must agree on; without numba, so that a warm start stays quick."""

from llamina.backends.cpu.features import HAS_VNNI
from llamina.ops.batch import PAGE

VECTORS = frozenset(
    {
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
        *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0"),
    }
)
"""Formats whose matrices are multiplied as they are stored, in registers."""

LANES = 16 if HAS_VNNI else 8
"""Rows of a tile: one for each 32 bits of a register."""
UNIT = 4 * LANES
"""Bytes of such a register."""
SUPER_CELL = (16 + 8 + 2) * UNIT
"""Bytes beside a tile's block of 256: scales of 16 runs, twice each; mins (or scales) of pairs of runs; d and dmin."""
PART = 1024
"""Elements of a row in a tile, at the most: two tiles stay in a near cache while the tokens pass by."""
FEW = 32
"""Tokens up to which half of them is better: adding results costs little, writing to a farther cache much."""
RESULTS = 16 * UNIT
"""Bytes of two tiles' results of four tokens: 8 registers, and 8 of what is to be taken from them."""
TILE_TOKENS = 512
"""Tokens that pass by tiles, at the most."""
SMALL_SIDE, SUPER_SIDE = 16 + 16 + 16, 128 + 16
"""Bytes beside four tokens' run of 32 (scales; these times sums; offset times sums), block of 256 (sums; scales)."""

CHUNK = 8
"""Pages whose scores go through one softmax; a context is cut into such chunks, which threads share."""
MOST_ROWS = 64
"""(token, head) pairs that attend together."""
PARTIALS = 8 << 20
"""Bytes of what came of a context's chunks, at the most; tasks that would need more are not shared by threads."""

AMX_TOKENS = 128
"""Tokens that pass by a block while it is unpacked for matrix registers, at the most."""
AMX_NEAR = 5 << 18
"""Bytes of them that should stay in the second-level cache."""
AMX_PAD = 2 * (8192 + 10240 + 256 + 64 * AMX_TOKENS)
"""Bytes of registers as stored, of unpacked blocks and their scales, and of results."""


def tile_bytes(k: int, width: int) -> int:
    """A tile's rows unpacked: their elements of 1 or 2 bytes, and room for the scales of either block size."""
    return LANES * width * k + max(k // 16 * UNIT, (k + 255) // 256 * SUPER_CELL)


def group_bytes(k: int, width: int) -> int:
    """Four tokens as tiles want them: elements of 1 or 2 bytes, and room for the scales of either block size."""
    return 4 * width * k + max(k // 32 * SMALL_SIDE, k // 256 * SUPER_SIDE)


def amx_group(k: int) -> int:
    """16 tokens as matrix registers want them, and room for the scales of either block size."""
    return 16 * ((k + 63) & ~63) + 5 * k + 128


def scratch_bytes(k: int, numbers: int) -> int:
    """What a thread needs to multiply matrices of rows up to k long, with a list of so many 32-bit numbers behind."""
    amx = AMX_PAD + AMX_TOKENS // 16 * amx_group(k)
    tiles = 2 * tile_bytes(min(k, PART), 2) + TILE_TOKENS // 4 * (RESULTS + group_bytes(k, 2))
    return -(-(max(tiles, amx) + 4 * numbers) // 64) * 64 + 128


def page_bytes(kv_type: str, dim: int) -> int:
    """One head's keys or values of a page of the cache."""
    if kv_type in ("f32", "f16"):
        return PAGE * -(-dim // 8) * 8 * (4 if kv_type == "f32" else 2)
    return PAGE * -(-dim // 32) * (34 if kv_type == "q8_0" else 18)


def partial_bytes(dim: int) -> int:
    """What came of a chunk for one row: the weighed values, the largest score and the sum of weights."""
    return 4 * ((dim + 7 & ~7) + 8)


def shared_bytes(rows: int, dim: int, context: int) -> int:
    """What came of all chunks of a context, and a count of those that are done."""
    return 64 + min(-(-context // (CHUNK * PAGE)) * rows * partial_bytes(dim), PARTIALS)
