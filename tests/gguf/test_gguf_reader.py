"""llamina.gguf.reader: good files, and what becomes of them and of open files."""

import gc
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf
from llamina.errors import ModelFileError, ModelNotFound, UnsupportedModel
from llamina.gguf import GGUF, tensor_type, write
from llamina.gguf.cursor import BLOCK
from skips import needs

MAPS = Path("/proc/self/maps")
FILES = [
    "stories260K.gguf",
    *(f"vocab/ggml-vocab-{name}.gguf" for name in ("bert-bge", "gpt-2", "llama-spm")),
]


@pytest.mark.parametrize("name", FILES)
def test_reads_what_the_gguf_package_reads(name: str, golden: Callable[[str], Path]) -> None:
    file, peer = GGUF.open(golden(name)), gguf.GGUFReader(golden(name))
    fields = {key: field for key, field in peer.fields.items() if not key.startswith("GGUF.")}
    assert list(file.metadata) == list(fields)
    for key, field in fields.items():
        value: Any = file.metadata[key]
        kinds = (file.metadata_types[key].type, file.metadata_types[key].element)
        assert [int(kind) for kind in field.types] == [kind for kind in kinds if kind is not None]
        assert field.contents() == (value.tolist() if isinstance(value, np.ndarray) else value)
    assert list(file.tensors) == [tensor.name for tensor in peer.tensors]
    for theirs in peer.tensors:
        ours = file.tensors[theirs.name]
        assert ours.shape == tuple(reversed(theirs.shape.tolist()))
        assert (ours.type.id, ours.offset, ours.nbytes) == (
            theirs.tensor_type,
            theirs.data_offset,
            theirs.n_bytes,
        )
        assert ours.data.tobytes() == theirs.data.tobytes()


def test_data_is_a_view_into_the_file(small: Path) -> None:
    data = GGUF.open(small).tensors["norm"].data
    assert data.dtype == np.uint8 and data.ndim == 1 and not data.flags.writeable and not data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


@needs("hardware", MAPS.exists(), "Linux, which tells what is mapped")
def test_views_outlive_the_file_and_then_it_is_unmapped(small: Path) -> None:
    with GGUF.open(small) as file:
        data = file.tensors["norm"].data
    expected = data.tobytes()
    gc.collect()
    assert str(small) in MAPS.read_text()
    assert not file.tensors and data.tobytes() == expected
    del data
    gc.collect()
    assert str(small) not in MAPS.read_text()


def test_a_vocabulary_of_128k_tokens_is_quick(golden: Callable[[str], Path]) -> None:
    path = golden("vocab/ggml-vocab-llama-bpe.gguf")
    start = time.process_time()
    file = GGUF.open(path)
    assert time.process_time() - start < 1.0  # a quarter of it on a busy machine of 2 cores
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list) and len(tokens) == 128256 and file.tensors == {}


def test_text_that_is_not_utf8_survives(tmp_path: Path) -> None:
    raw = b"\xff\xfe ok \xc3"
    write(tmp_path / "a.gguf", {"text": raw.decode("utf-8", "surrogateescape")}, [])
    text = GGUF.open(tmp_path / "a.gguf").metadata["text"]
    assert isinstance(text, str) and text.encode("utf-8", "surrogateescape") == raw


def test_big_endian_files_of_the_gguf_package(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    peer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    peer.add_uint64("number", 2**40)
    peer.add_array("numbers", [1.5, -2.0])
    peer.add_array("words", ["a", "bc"])
    peer.add_tensor("x", values)
    peer.add_tensor("half", values.astype(np.float16))
    peer.write_header_to_file()
    peer.write_kv_data_to_file()
    peer.write_tensors_to_file()
    peer.close()
    file = GGUF.open(tmp_path / "big.gguf")
    assert (file.byteorder, file.metadata["number"], file.metadata["words"]) == ("big", 2**40, ["a", "bc"])
    np.testing.assert_array_equal(file.metadata["numbers"], [1.5, -2.0])
    np.testing.assert_array_equal(file.tensors["x"].data.view("<f4").reshape(2, 32), values)
    np.testing.assert_array_equal(file.tensors["half"].data.view("<f2").reshape(2, 32), values)


def test_big_endian_blocks_without_an_agreed_form_are_refused(tmp_path: Path) -> None:
    name = b"blk.0.w"
    head = b"GGUF" + (3).to_bytes(4, "big") + (1).to_bytes(8, "big") + (0).to_bytes(8, "big")
    entry = len(name).to_bytes(8, "big") + name + (1).to_bytes(4, "big") + (256).to_bytes(8, "big")
    entry += tensor_type("IQ2_XXS").id.to_bytes(4, "big") + (0).to_bytes(8, "big")
    (tmp_path / "big.gguf").write_bytes((head + entry).ljust(64, b"\0") + bytes(66))
    tensor = GGUF.open(tmp_path / "big.gguf").tensors["blk.0.w"]
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.w is IQ2_XXS.*little-endian"):
        _ = tensor.data


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"missing\.gguf"):
        GGUF.open(tmp_path / "missing.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GGUF.open(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GGUF.open(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(ModelFileError, match="empty"):
        GGUF.open(tmp_path / "empty")
    with pytest.raises(ModelFileError, match="cannot be read"):
        GGUF.open("a\0b")


def test_many_strings(tmp_path: Path) -> None:
    """Strings that end where a block of them does, beyond it, and that are longer than one."""
    texts = ["é" * (i % 700) for i in range(3000)] + ["x" * (3 * BLOCK), "", "y"]
    texts += ["z" * (BLOCK - 16), "", "a", "b" * (BLOCK - 8), "c"]
    write(tmp_path / "m.gguf", {"general.architecture": "llama", "texts": texts}, [])
    assert GGUF.open(tmp_path / "m.gguf").metadata["texts"] == texts


@needs("hardware", hasattr(mmap, "MADV_WILLNEED"), "a system that takes advice about memory")
def test_data_is_read_ahead_when_asked(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Mapping(mmap.mmap):
        def madvise(self, *advice: int) -> None:
            asked.append(advice)
            super().madvise(*advice)

    monkeypatch.setattr("llamina.gguf.reader.mmap.mmap", Mapping)
    file = GGUF.open(small)
    assert len(file.tensors) > 1 and not asked
    file.read_ahead()
    assert asked == [(mmap.MADV_WILLNEED,)]
