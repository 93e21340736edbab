"""RoPE's angles (every scaling scheme is one angle per position and pair), Hadamard matrices, ALiBi slopes."""

import math

import numpy as np
import numpy.typing as npt

from llamina.ops.vocabulary import Rope


def frequencies(rope: Rope, factors: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float64]:
    """Radians per position for each rotated pair, [dims/2]."""
    pair = np.arange(rope.dims // 2)
    unscaled: npt.NDArray[np.float64] = np.power(rope.base, -2.0 * pair / rope.dims)
    unscaled[list(rope.unrotated)] = 0.0
    if factors is not None:
        unscaled = unscaled / factors
    if not rope.ext_factor:
        return unscaled * rope.scale
    low = max(0.0, math.floor(_pair_of_wavelength(rope, rope.beta_fast)))
    high = min(rope.dims - 1.0, math.ceil(_pair_of_wavelength(rope, rope.beta_slow)))
    past = np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)
    keep: npt.NDArray[np.float64] = (1.0 - past) * rope.ext_factor  # 1: fast pairs stay as trained
    return unscaled * (rope.scale * (1.0 - keep) + keep)


def _pair_of_wavelength(rope: Rope, turns: float) -> float:
    """The pair that rotates `turns` times within the original context."""
    return rope.dims * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))


def hadamard_size(*dims: int) -> int:
    """The size of the Hadamard matrix for heads of these dims: the greatest power of two that divides all, up to 64."""
    common = math.gcd(64, *dims)
    return common & -common


def hadamard(size: int) -> npt.NDArray[np.float32]:
    """The orthonormal Hadamard matrix, which is its own inverse."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(size)).astype(np.float32)


def alibi_slopes(heads: int, largest: float) -> npt.NDArray[np.float32]:
    """The bias per position of distance, for each head; zeros without ALiBi."""
    if not largest:
        return np.zeros(heads, np.float32)
    n = 1 << (heads.bit_length() - 1)  # the power of two not above heads
    near, far = 2.0 ** (-largest / n), 2.0 ** (-largest / 2 / n)
    return np.array([near ** (h + 1) if h < n else far ** (2 * (h - n) + 1) for h in range(heads)], np.float32)
