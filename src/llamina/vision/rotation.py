"""RoPE in two dimensions: half of a head's pairs follow a patch's row, the other half its column."""

from llamina.errors import UnsupportedModel
from llamina.ops import Rope, Weight, constant

ROW, COLUMN = 1, 2  # of M-RoPE's positions


def grid_rope(
    dim: int, neox: bool = False, axes: tuple[int, int] = (ROW, COLUMN), interleaved: bool = False
) -> tuple[Rope, Weight]:
    """The rotation of heads of `dim`, and the divisors of its positions.

    Both halves have the same frequencies, or, `interleaved`, every other one of a whole head's.
    """
    quarter, base = dim // 4, 10000.0
    if dim % 4:
        raise UnsupportedModel(f"heads of {dim} cannot be rotated in two dimensions: a multiple of 4 is expected")
    first = [base ** (i / quarter) for i in range(quarter)]
    shift = base ** (2 / dim) if interleaved else 1.0
    periods = constant("v.rope", [*first, *(period * shift for period in first)])
    return Rope(dim, 1.0, neox=neox, axes=(axes[0],) * quarter + (axes[1],) * quarter), periods
