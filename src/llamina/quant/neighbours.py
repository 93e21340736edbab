"""Tables for quantizing to a codebook: the entry at a point of the lattice, or the entries near it.

A point is a vector of level numbers, and its number is their sum times powers of the number of levels. The tables of a
codebook are one run of bytes:

    int32 [points]           the entry at a point, or -(1 + the offset of its list)
    uint8 [entries, width]   2 * level + 1
    lists, each a multiple of 8 bytes:
        int64                registers in the list
        uint8 [width, 8]     2 * level + 1 of 8 entries, for each register; …
        uint16 [8]           … and the numbers of these entries

A list holds the entries at the smallest distances (`shells` different ones), nearest first, then by number. The last
entry is repeated to fill a register.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from llamina.quant.grids import IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID

_CODEBOOKS = {  # and how many distances count
    **dict.fromkeys(("IQ1_S", "IQ1_M"), (IQ1_GRID, 3)),
    **{"IQ2_XXS": (IQ2_XXS_GRID, 2), "IQ2_XS": (IQ2_XS_GRID, 2), "IQ2_S": (IQ2_S_GRID, 1)},
    **{"IQ3_XXS": (IQ3_XXS_GRID, 2), "IQ3_S": (IQ3_S_GRID, 3)},
}
FORMATS = tuple(_CODEBOOKS)
_AT_ONCE = 512  # points whose distances are computed together


@cache
def search_tables(name: str) -> npt.NDArray[np.uint8]:
    """The tables of a format's codebook."""
    if name == "IQ1_M":
        return search_tables("IQ1_S")
    grid, shells = _CODEBOOKS[name]
    levels = np.searchsorted(np.unique(grid), grid)
    base, width = int(levels.max()) + 1, grid.shape[1]
    powers = base ** np.arange(width)
    places = np.full(base**width, -1, np.int32)
    places[levels @ powers] = np.arange(len(grid))
    odd = (2 * levels + 1).astype(np.uint8)
    lists, size = [], 0
    missing = np.flatnonzero(places < 0)
    for start in range(0, len(missing), _AT_ONCE):
        points = missing[start : start + _AT_ONCE]
        for point, near in zip(points, _near(points[:, None] // powers % base, levels, shells), strict=True):
            places[point] = -(1 + size)
            lists.append(_list(odd, near))
            size += lists[-1].nbytes
    tables = np.concatenate([places.view(np.uint8), odd.reshape(-1), *lists])
    tables.flags.writeable = False
    return tables


def _near(points: npt.NDArray[np.int64], levels: npt.NDArray[np.int64], shells: int) -> list[npt.NDArray[np.int64]]:
    """The entries near each point, in order."""
    a, b = points.astype(np.float32), levels.astype(np.float32)
    distances = ((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T).astype(np.int32)
    farthest = np.full((len(points), 1), -1, np.int32)
    for _ in range(shells):
        beyond = np.where(distances > farthest, distances, np.iinfo(np.int32).max)
        farthest = beyond.min(axis=1, keepdims=True)
    return [
        np.flatnonzero(row <= most)[np.argsort(row[row <= most], kind="stable")]
        for row, most in zip(distances, farthest[:, 0], strict=True)
    ]


def _list(odd: npt.NDArray[np.uint8], near: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    padded = np.concatenate([near, np.repeat(near[-1:], -len(near) % 8)]).reshape(-1, 8)
    values = odd[padded].swapaxes(1, 2).reshape(len(padded), -1)  # [registers, width * 8]
    numbers = padded.astype("<u2").view(np.uint8).reshape(len(padded), 16)
    count = np.array([len(padded)], "<i8").view(np.uint8)
    return np.concatenate([count, np.concatenate([values, numbers], axis=1).reshape(-1)])
