"""Kernels compiled for a GPU that is not there, and their cache."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import patch

import pytest

from llamina.backends.cuda import compiler
from llamina.backends.cuda.device import launch_of
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.errors import KernelError, RequestError
from skips import import_peer

import_peer("triton")
X = Ref(Buffer(0))
ARGS = {
    "x": X,
    "x_row": 64,
    "out": X,
    "out_row": 64,
    "count": replace(X, type="i32"),
    "before": 3,
    "inner": 67,
    "fill": 0.5,
}
PAD = launch_of("elementwise.pad", (1, 1, 1), 4, 3, ARGS, {"BLOCK": 128}).kernel
TARGET = 90


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path))


def test_compiled_once(tmp_path: Path) -> None:
    """For an explicit target, in a process of its own; then the cache has it, until its file is damaged."""
    told: list[tuple[str, int, int]] = []
    code = compiler.prepare([PAD, PAD], TARGET, lambda *args: told.append(args))[PAD]
    assert told == [("compiling elementwise.pad", 0, 1), ("", 1, 1)]
    assert code.binary[:4] == b"\x7fELF" and code.threads == 128
    assert code.params == ("x", "x_row", "out", "out_row", "count", "before", "inner", "fill")
    with patch("subprocess.Popen", side_effect=AssertionError):
        assert compiler.prepare([PAD], TARGET)[PAD] == code
    (file,) = (tmp_path / "cuda").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert compiler.prepare([PAD], TARGET)[PAD] == code


def test_stale_kernels(tmp_path: Path) -> None:
    """A kernel's file says which sources and which compiler it is of."""
    compiler._write(PAD, TARGET, compiler.Code(b"binary", "entry", ("x",), 128, 0))
    (path,) = (tmp_path / "cuda").iterdir()
    assert compiler.stale(tmp_path / "cuda") == [] and compiler.missing([PAD], TARGET) == []
    whole = path.read_bytes()
    for other in (whole.replace(b'"source": "', b'"source": "0'), whole.replace(b'"triton": "', b'"triton": "0'), b"x"):
        path.write_bytes(other)
        assert compiler.stale(tmp_path / "cuda") == [path]


def test_what_cannot_be_compiled_says_why() -> None:
    odd = replace(PAD, constants=(("BLOCK", 128), ("MORE", 1)))
    with pytest.raises(KernelError, match=r"other arguments than it has: \['MORE'\]"):
        compiler.prepare([odd], TARGET)


def test_a_kernel_is_known_by_all_its_sources() -> None:
    """A file's hash covers those that it imports."""
    before = compiler.source_hash("endings")
    read = Path.read_bytes
    with patch.object(Path, "read_bytes", lambda self: read(self) + (b"#" if self.name == "activations.py" else b"")):
        compiler.source_hash.cache_clear()
        assert compiler.source_hash("endings") != before
    compiler.source_hash.cache_clear()


def test_without_triton() -> None:
    compiler._triton.cache_clear()
    missing = patch.object(compiler, "version", side_effect=PackageNotFoundError)
    with missing, pytest.raises(RequestError, match=r"pip install 'llamina\[cuda\]'"):
        compiler.prepare([PAD], TARGET)
    compiler._triton.cache_clear()
