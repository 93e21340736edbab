"""The packing of fields, and the tables."""

import numpy as np
import pytest

from llamina.quant import grids
from llamina.quant.bits import fields, pack


def test_planes() -> None:
    data = np.array([0x21, 0x43, 0x65, 0x87], np.uint8)
    assert fields(data, 4, 1).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert fields(data, 4, 2).tolist() == [1, 3, 2, 4, 5, 7, 6, 8]
    assert fields(data, 4, 4).tolist() == [1, 3, 5, 7, 2, 4, 6, 8]
    assert fields(np.array([0b10_01_00_11], np.uint8), 2, 1).tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_pack_undoes_fields(width: int, group: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, (3, 16), np.uint8)
    np.testing.assert_array_equal(pack(fields(data, width, group), width, group), data)


@pytest.mark.parametrize(
    ("table", "shape"),
    [
        (grids.IQ1_GRID, (2048, 8)),
        (grids.IQ2_XXS_GRID, (256, 8)),
        (grids.IQ2_XS_GRID, (512, 8)),
        (grids.IQ2_S_GRID, (1024, 8)),
        (grids.IQ3_XXS_GRID, (256, 4)),
        (grids.IQ3_S_GRID, (512, 4)),
        (grids.SIGNS, (256, 8)),
        (grids.EVEN_SIGNS, (128, 8)),
    ],
)
def test_tables_are_whole_and_constant(table: np.ndarray, shape: tuple[int, int]) -> None:
    assert table.shape == shape
    assert table.dtype == np.int8
    assert len(np.unique(table, axis=0)) == len(table)
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


def test_even_signs() -> None:
    assert (grids.EVEN_SIGNS.prod(axis=1) == 1).all()
    assert grids.EVEN_SIGNS[0b1].tolist() == [-1, 1, 1, 1, 1, 1, 1, -1]
