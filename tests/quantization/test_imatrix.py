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


def test_sums_are_added_up(tmp_path: Path) -> None:
    first, second = Imatrix(SUMS, COUNTS, ["one"], 2, 512), Imatrix(SUMS, COUNTS, ["two"], 3, 512)
    both = first.plus(second)
    assert (both.datasets, both.chunks, both.chunk_size) == (["one", "two"], 5, 512)
    assert all((both.sums[name] == 2 * SUMS[name]).all() for name in SUMS)
    assert all((both.counts[name] == 2 * COUNTS[name]).all() for name in SUMS)
    narrow = Imatrix({"a.weight": np.ones((2, 2), np.float32)}, {"a.weight": np.ones(2, np.float32)}, [], 1, 512)
    with pytest.raises(ModelFileError, match=r"a\.weight has 4 columns in None, and 6 in the others"):
        first.plus(narrow)


def test_older_files_are_written_and_added(tmp_path: Path) -> None:
    """They have means times chunks, and one count for all experts; 1 for those that saw no token."""
    Imatrix(SUMS, COUNTS, ["text"], 2, 2).save(tmp_path / "i.dat", legacy=True)
    older = Imatrix.read(tmp_path / "i.dat")
    assert (older.datasets, older.chunks, older.chunk_size) == (["text"], 2, 0)
    found = older.importances("a.weight")
    assert found is not None and found.tolist() == [[0, 0.5, 1, 1, 1, 1]]
    both = Imatrix(SUMS, COUNTS, [], 2, 2).plus(older)
    assert both.sums["a.weight"].tolist() == [[0, 2, 4], [5, 6, 7]] and both.counts["a.weight"].tolist() == [4, 2]
    assert both.sums["b.weight"].tolist() == [[2, 2, 2, 2]] and both.counts["b.weight"].tolist() == [8]
