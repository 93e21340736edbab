"""A GGUF file as a mapping of arrays: the numbers of the gguf package, lazily, and how it is shown."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gguf
import llamina
from llamina import GGUF
from llamina.errors import ModelNotFound
from llamina.gguf import tensor_type, write
from llamina.quant import encode

Golden = Callable[[str], Path]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A file with a tensor of several types, and hostile names."""
    numbers = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    stored = [
        (kind, (4, 64), tensor_type(kind), encode(numbers, kind).reshape(-1)) for kind in ("Q8_0", "Q4_0", "BF16")
    ]
    plain = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I32": np.int32}
    stored += [
        (kind, (4, 64), tensor_type(kind), (10 * numbers).astype(dtype).reshape(-1).view(np.uint8))
        for kind, dtype in plain.items()
    ]
    metadata = {"general.architecture": "x", "general.name": "<b>bold</b>", "x.many": list(range(100))}
    write(tmp_path / "mixed.gguf", metadata, stored)
    return tmp_path / "mixed.gguf"


def test_numbers_are_those_of_the_gguf_package(mixed: Path) -> None:
    file = GGUF(mixed)
    peers = {tensor.name: tensor for tensor in gguf.GGUFReader(mixed).tensors}
    assert list(file) == list(peers) and len(file) == len(peers) == 7
    for name, array in file.items():
        peer = peers[name]
        expected = gguf.dequantize(peer.data, peer.tensor_type) if name in ("Q8_0", "Q4_0", "BF16") else peer.data
        assert array.shape == (4, 64) and array.dtype == expected.dtype
        assert np.array_equal(array, expected.reshape(4, 64))


def test_plain_ones_are_views_and_others_are_decoded_anew(mixed: Path) -> None:
    file = GGUF(mixed)
    assert not file["F16"].flags.owndata and not file["F16"].flags.writeable
    assert np.shares_memory(file["F32"], file["F32"])
    decoded = file["Q8_0"]
    decoded[:] = 0  # one's own
    assert file["Q8_0"].any() and file["Q8_0"] is not file["Q8_0"]


def test_a_mapping(mixed: Path) -> None:
    file = GGUF(mixed)
    assert "F32" in file and "nothing" not in file and file.get("nothing") is None
    assert file.metadata["general.architecture"] == "x" and file.tensors["Q4_0"].type.name == "Q4_0"
    with pytest.raises(TypeError):
        file.metadata["x"] = 1  # type: ignore[index]
    with pytest.raises(KeyError, match="did you mean 'Q8_0'"):
        file["Q8_1"]
    with pytest.raises(ModelNotFound):
        GGUF(mixed.parent / "none.gguf")


def test_how_it_is_shown(mixed: Path, golden: Golden) -> None:
    text = repr(GGUF(golden("stories260K.gguf")))
    assert "tensors" in text.splitlines()[0] and "llama" in text.splitlines()[0]
    assert "token_embd.weight" in text and text.splitlines()[-1].strip().startswith("… and")
    html = GGUF(mixed)._repr_html_()
    assert "&lt;b&gt;bold" in html and "<b>" not in html
    assert "100: [0, 1, 2, 3, …]" in html and "<td>Q4_0</td>" in html and "4 × 64" in html


def test_a_model_is_loaded_from_one(golden: Golden) -> None:
    with llamina.load(GGUF(golden("stories260K.gguf")), threads=1, context=32) as engine:
        assert engine.context == 32
