"""Single kernels, on matrices of a few rows."""

import numpy as np
import pytest

from llamina.bench import kernel_formats, measure_kernels
from llamina.bench.kernels import Sizes, random_matrix
from llamina.bench.memory import peak_bytes, read_bandwidth
from llamina.errors import RequestError
from llamina.quant import decode


def quiet(*what: object) -> None:
    """Nobody watches."""


def test_each_format_has_a_rate_of_reading_and_one_of_arithmetic() -> None:
    found = measure_kernels(["q8_0", "F32"], [1, 2], Sizes(1, 9, 2), "test", quiet, quiet)
    assert [(r["name"], r["unit"]) for r in found["results"][:4]] == [
        ("Q8_0 n1 t1", "GB/s"),
        ("Q8_0 n9 t1", "GMAC/s"),
        ("Q8_0 n1 t2", "GB/s"),
        ("Q8_0 n9 t2", "GMAC/s"),
    ]
    assert len(found["results"]) == 8 and all(r["rate"] > 0 and len(r["seconds"]) == 2 for r in found["results"])
    assert found["machine"]["cpu"] and found["kind"] == "kernels"


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(RequestError, match="'Q9_Z' is not one of F32, "):
        measure_kernels(["Q9_Z"], [1], Sizes(), "test", quiet, quiet)


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q4_0", "Q6_K", "IQ2_XS", "TQ2_0", "MXFP4"])
def test_matrices_are_of_ordinary_numbers(kind: str) -> None:
    matrix = random_matrix(kind, 100_000)
    values = decode(matrix.data, matrix.format, matrix.shape)
    assert np.isfinite(values).all() and 1e-3 < np.abs(values).max() <= 100
    assert matrix.data.nbytes >= 90_000


def test_formats_are_those_of_weights() -> None:
    assert {"F32", "Q4_K", "IQ1_S", "MXFP4"} <= set(kernel_formats())
    assert not {"Q8_1", "Q8_K", "I32"} & set(kernel_formats())


def test_memory_is_read_and_counted() -> None:
    assert read_bandwidth(2, 1 << 20) > 0
    assert (peak_bytes() or 1) > 0
