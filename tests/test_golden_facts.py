"""The folder of golden facts: small, told of, and unpacked as it was packed."""

import lzma
from fnmatch import fnmatch
from pathlib import Path
from re import findall

import pytest

from golden_facts import GOLDEN, unpack

FILES = [path for path in GOLDEN.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_small_enough_for_a_clone() -> None:
    assert sum(path.stat().st_size for path in FILES) < 20_000_000


def test_the_readme_says_how_each_was_obtained() -> None:
    told = findall(r"`([^`]+)`", (GOLDEN / "README.md").read_text(encoding="utf-8"))
    names = {path.relative_to(GOLDEN).as_posix() for path in FILES} - {"README.md", ".gitattributes"}
    assert {name for name in names if not any(fnmatch(name, pattern) for pattern in told)} == set()


def test_unpacked_once(tmp_path: Path) -> None:
    name = "vocab/ggml-vocab-bert-bge.gguf"
    path = unpack(name, tmp_path)
    assert path.read_bytes() == lzma.decompress((GOLDEN / f"{name}.xz").read_bytes())
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]
    path.write_bytes(b"mine")
    assert unpack(name, tmp_path).read_bytes() == b"mine"
    assert unpack("archs.json", tmp_path) == GOLDEN / "archs.json"
    with pytest.raises(FileNotFoundError):
        unpack("vocab/nobody.gguf", tmp_path)
