"""How matrices and tokens are tiled for GEMM: sizes that the lowering and the kernels must agree on.

Without numba, so that a warm start stays quick.
"""

from llamina.backends.cpu.features import HAS_AMX_BF16, HAS_AVX512, HAS_VNNI, ZEN_5

LANES = 16 if HAS_VNNI else 8
"""Rows of a tile: one for each 32 bits of a register."""
UNIT = 4 * LANES
"""Bytes of such a register."""
SUPER_CELL = (16 + 8 + 2) * UNIT
"""Bytes beside a tile's block of 256: scales of 16 runs, twice each; mins (or scales) of pairs of runs; d and dmin."""
PART = 1024
"""Elements of a row in a tile, at the most: two tiles stay in the first-level cache while the tokens pass by."""
FEW = 32
"""Tokens up to which half of them is better: adding results costs little, writing to a farther cache much."""
SLICE = 256
"""Elements that are multiplied between one prefetch of the next rows and another."""
RESULTS = 16 * UNIT
"""Bytes of two tiles' results of four tokens, the accumulators: 8 sums, and 8 min corrections."""
TILE_TOKENS = 512
"""Tokens that pass by tiles, at the most."""
SMALL_SIDE, SUPER_SIDE = 16 + 16 + 16, 128 + 16
"""Bytes beside four tokens' run of 32 (scales; these times sums; offset times sums), block of 256 (sums; scales)."""

FLOAT_TOKENS = 600
"""Tokens that pass by float weights, at the most."""
FLOAT_PART = 4096
"""Elements of a row of float weights in a tile, at the most."""
FLOAT_PART_BYTES = 6144 if ZEN_5 and HAS_AVX512 else 1 << 14
"""Bytes of a token that go with it: where products outrun the second-level cache, six tokens' stay in the first."""
PANEL, PANEL_BYTES = 64, 1 << 18
"""Rows of float weights that all tokens pass by, and their bytes, at the most: they stay in the second-level cache."""

AMX_TOKENS = 128
"""Tokens that pass by a block while it is unpacked for matrix registers, at the most."""
AMX_L2_BYTES = 5 << 18
"""Bytes of them that should stay in the second-level cache."""
AMX_PAD = 2 * (8192 + 10240 + 256 + 64 * AMX_TOKENS)
"""Bytes of registers as stored, of unpacked blocks and their scales, and of results."""

AMX_STEPS = 16
"""Times 32 elements: a part of a row of float weights. What is summed in which order depends on it."""
AMX_FLOAT_ROWS = 128
"""Rows of float weights that all tokens pass by: their part and their sums stay in the second-level cache."""
AMX_FLOAT_TOKENS, AMX_FLOAT_BYTES = 512, 4 << 20
"""Tokens that pass by them, and their bytes, at the most (but 32 may)."""


def tile_bytes(k: int, width: int) -> int:
    """A tile's rows unpacked: their elements of 1 or 2 bytes, and room for the scales of either block size."""
    return LANES * width * k + max(k // 16 * UNIT, (k + 255) // 256 * SUPER_CELL)


def group_bytes(k: int, width: int) -> int:
    """Four tokens as tiles want them: elements of 1 or 2 bytes, and room for the scales of either block size."""
    return 4 * width * k + max(k // 32 * SMALL_SIDE, k // 256 * SUPER_SIDE)


def amx_group(k: int) -> int:
    """16 tokens as matrix registers want them, and room for the scales of either block size."""
    return 16 * ((k + 63) & ~63) + 5 * k + 128


def amx_float_bytes(k: int) -> int:
    """What a thread needs for float weights in matrix registers: a panel, sums, and tokens, all of two parts."""
    panel, sums = AMX_FLOAT_ROWS * 64 * 2 * AMX_STEPS, 4 * AMX_FLOAT_ROWS * AMX_FLOAT_TOKENS
    return panel + sums + max(AMX_FLOAT_BYTES, 32 * 64 * 2 * ((k + 31) // 32))


def scratch_bytes(k: int, numbers: int) -> int:
    """What a thread needs to multiply matrices of rows up to k long, with a list of so many 32-bit numbers behind."""
    amx = AMX_PAD + AMX_TOKENS // 16 * amx_group(k)
    tiles = 2 * tile_bytes(min(k, PART), 2) + TILE_TOKENS // 4 * (RESULTS + group_bytes(k, 2))
    floats = PANEL_BYTES + PANEL * (4 * 7 + 4 * 6) + 64 * PANEL * FLOAT_TOKENS
    if HAS_AMX_BF16:
        floats = max(floats, amx_float_bytes(k))
    return -(-(max(tiles, amx, floats) + 4 * numbers) // 64) * 64 + 128
