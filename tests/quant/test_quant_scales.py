"""llamina.quant.scales: blocks whose scales are NaN or infinite, found without dequantizing."""

import numpy as np
import pytest

from llamina.gguf import TENSOR_TYPES, tensor_type
from llamina.quant import FORMATS, decode
from llamina.quant.scales import count_not_finite

VALID = {"NVFP4", "I8", "I16", "I32", "I64"}  # every byte is a number


@pytest.mark.parametrize("kind", [kind for kind in TENSOR_TYPES.values() if kind.id in FORMATS], ids=lambda k: k.name)
def test_as_many_as_dequantizing_finds(kind: object) -> None:
    kind = tensor_type(str(kind.name))  # type: ignore[attr-defined]
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (4000, kind.nbytes), np.uint8)
    data[::3] |= rng.integers(0, 2, (len(data[::3]), kind.nbytes), np.uint8) * 0x7F  # more exponents of ones
    values = decode(data, kind)
    odd = ~np.isfinite(values)
    expected = int(odd.sum()) if kind.block == 1 else int(odd.any(axis=1).sum())
    found = count_not_finite(data.reshape(-1), kind)
    if kind.name in ("F64", "Q8_K"):  # numbers that float32 cannot hold, or not multiplied, are numbers still
        stored = data.view(np.float64) if kind.name == "F64" else np.ascontiguousarray(data[:, :4]).view(np.float32)
        expected = int((~np.isfinite(stored)).sum())
    if kind.name == "MXFP4":  # its largest exponent stands for NaN, which ggml and we decode as a power of two
        expected = int((data[:, 0] == 0xFF).sum())
    if kind.name in VALID:
        assert found == expected == 0
    else:
        assert found == expected > 10


def test_whole_numbers_are_numbers() -> None:
    assert count_not_finite(np.full(64, 0xFF, np.uint8), tensor_type("I32")) == 0
