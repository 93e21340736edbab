"""Importance matrices: llama.cpp's GGUF and older files, and what is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

from llamina.errors import ModelFileError, ModelNotFound
from llamina.gguf import GGUF, tensor_type, write
from llamina.quantization import Imatrix

SUMS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b.weight": np.ones((1, 4), np.float32)}
COUNTS = {"a.weight": np.array([2, 0], np.float32), "b.weight": np.array([4], np.float32)}


def test_there_and_back(tmp_path: Path) -> None:
    made = Imatrix(SUMS, COUNTS, ["text.txt"], 7, 512)
    made.save(tmp_path / "i.gguf")
    read = Imatrix.read(tmp_path / "i.gguf")
    assert (read.datasets, read.chunks, read.chunk_size) == (["text.txt"], 7, 512)
    found = read.importances("a.weight")
    assert found is not None and found.tolist() == [[0, 0.5, 1], [1, 1, 1]]
    assert read.importances("c.weight") is None
    with GGUF.open(tmp_path / "i.gguf") as file:
        assert file.metadata["general.type"] == "imatrix"
        assert [(t.name, t.shape) for t in file.tensors.values()] == [
            ("a.weight.in_sum2", (2, 3)),
            ("a.weight.counts", (2, 1)),
            ("b.weight.in_sum2", (1, 4)),
            ("b.weight.counts", (1, 1)),
        ]


def test_older_files(tmp_path: Path) -> None:
    values = np.array([2, 4], "<f4")
    entry = struct.pack("<i", 3) + b"a.w" + struct.pack("<ii", 2, 2) + values.tobytes()
    tail = struct.pack("<ii", 9, 4) + b"text"
    (tmp_path / "i.dat").write_bytes(struct.pack("<i", 1) + entry + tail)
    read = Imatrix.read(tmp_path / "i.dat")
    found = read.importances("a.w")
    assert found is not None and found.tolist() == [[1, 2]]
    assert (read.datasets, read.chunks) == (["text"], 9)
    (tmp_path / "short.dat").write_bytes(struct.pack("<i", 1) + entry[:-3])
    with pytest.raises(ModelFileError, match="ends too early"):
        Imatrix.read(tmp_path / "short.dat")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        Imatrix.read(tmp_path / "none.gguf")
    (tmp_path / "empty.dat").write_bytes(struct.pack("<i", 0))
    with pytest.raises(ModelFileError, match="holds no tensors"):
        Imatrix.read(tmp_path / "empty.dat")
    kind = tensor_type("F32")
    write(tmp_path / "model.gguf", {}, [("a", (2,), kind, np.ones(2, np.float32))])
    with pytest.raises(ModelFileError, match=r"has no imatrix\.datasets"):
        Imatrix.read(tmp_path / "model.gguf")
    Imatrix({"a": np.full((1, 2), np.nan, np.float32)}, {"a": np.ones(1, np.float32)}, ["t"], 1, 1).save(
        tmp_path / "nan.gguf"
    )
    with pytest.raises(ModelFileError, match="a holds NaN"):
        Imatrix.read(tmp_path / "nan.gguf")
