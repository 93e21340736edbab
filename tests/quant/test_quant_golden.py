"""Decoding and encoding against the bytes and values that ggml itself computed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from llamina.quant import FORMATS, Format, decode, encode, format_of

# ggml has no decoder of its own for those that never reach a file.
FORMATS_IN_GOLDEN = [
    f for f in FORMATS.values() if f.name in ("F16", "BF16") or (f.block > 1 and f.name not in ("Q8_1", "Q8_K"))
]


Facts: TypeAlias = dict[str, np.ndarray[Any, Any]]


@cache
def load(path: Path) -> Facts:
    """The stored arrays under our spelling of the formats: `Q4_K.encoded`."""
    with np.load(path) as stored:
        split = {key: key.partition(".") for key in stored}
        return {
            (name if name == "encode" else name.upper()) + dot + part: stored[key]
            for key, (name, dot, part) in split.items()
        }


@pytest.fixture
def facts(golden: Callable[[str], Path]) -> Facts:
    return load(Path(golden("quant_golden.npz")))


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Equal bit for bit, signed zeros included; any NaN equals any other."""
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    equal = found.view(np.uint32) == expected.view(np.uint32)
    return bool((equal | np.isnan(found) & np.isnan(expected)).all())


def test_the_formats_are_those_of_ggml(facts: Facts) -> None:
    rows = [str(row).split(":")[:4] for row in facts["TYPES"]]
    assert [(int(i), name.upper(), int(block), int(nbytes)) for i, name, block, nbytes in rows] == [
        (f.type.id, f.name, f.block, f.nbytes) for f in FORMATS_IN_GOLDEN
    ]


@pytest.mark.parametrize("form", FORMATS_IN_GOLDEN, ids=str)
class TestDecode:
    def test_random_blocks(self, form: Format, facts: Facts) -> None:
        assert same(form.decode(facts[f"{form}.random_bytes"]), facts[f"{form}.random_values"])

    @pytest.mark.parametrize("kind", ["", "_imatrix"])
    def test_encoded_rows(self, form: Format, kind: str, facts: Facts) -> None:
        if f"{form}.encoded{kind}" not in facts:
            assert kind or form.name.startswith(("IQ1", "IQ2"))
            return
        assert same(decode(facts[f"{form}.encoded{kind}"], form), facts[f"{form}.decoded{kind}"])


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_encode(name: str, facts: Facts) -> None:
    assert np.array_equal(encode(facts["encode.input"], format_of(name)), facts[f"{name}.encoded"])
