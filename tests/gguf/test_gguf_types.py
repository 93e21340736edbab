"""llamina.gguf.types against ggml's own tables."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gguf
from llamina.errors import UnsupportedModel
from llamina.gguf import TENSOR_TYPES, Kind, ValueType, tensor_type


def test_tensor_types_are_those_of_the_golden_formats(golden: Callable[[str], Path]) -> None:
    for row in np.load(golden("quant_golden.npz"))["types"]:
        number, name, block, nbytes, _ = str(row).split(":")
        found = TENSOR_TYPES[int(number)]
        assert (found.name, found.block, found.nbytes) == (name.upper(), int(block), int(nbytes))


def test_tensor_types_cover_the_gguf_package() -> None:
    for kind, (block, nbytes) in gguf.GGML_QUANT_SIZES.items():
        found = TENSOR_TYPES[kind.value]
        # gguf up to 0.19 counts the scales of Q8_1 as 32-bit; ggml's block_q8_1 has two halves.
        size = 36 if kind.name == "Q8_1" else nbytes
        assert (found.name, found.block, found.nbytes) == (kind.name, block, size)


def test_value_types_are_those_of_the_gguf_package() -> None:
    assert {kind.name: kind.value for kind in ValueType} == {kind.name: kind.value for kind in gguf.GGUFValueType}


def test_lookup_by_id_and_name() -> None:
    assert tensor_type(12) is tensor_type("Q4_K") is tensor_type("q4_k") is TENSOR_TYPES[12]
    assert tensor_type("Q4_K").size((3, 512)) == 3 * 2 * 144


@pytest.mark.parametrize(("key", "words"), [(99, "99"), ("Q9_9", "Q9_9"), (4, "Q4_2.*removed"), (-1, "-1")])
def test_unknown_types_are_unsupported(key: int | str, words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        tensor_type(key)


def test_a_kind_prints() -> None:
    assert str(Kind(ValueType.UINT32)) == "UINT32"
    assert str(Kind(ValueType.ARRAY, ValueType.STRING)) == "ARRAY[STRING]"
