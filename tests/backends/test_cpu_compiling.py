"""Kernels compiled by several processes and kept on disk: what they depend on, and what may happen to the files."""

import ast
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llamina.backends.cpu.jit import linking
from llamina.backends.cpu.jit.cache import CONSTANTS, PACKAGE, KernelFiles, fingerprint, sources
from llamina.backends.cpu.jit.linking import Library
from llamina.backends.cpu.jit.processes import PROGRAM, share_out

NAMES = ["add", "mul", "scale", "copy", "pick", "rope", "rope_table", "softcap"]


def test_everything_is_dealt_once() -> None:
    names = ["attend.f16", "linear.Q4_K", "linear.Q6_K", "experts.Q4_K", *NAMES]
    for processes in (1, 2, 3, 50):
        shares = share_out(names, processes)
        assert sorted(name for share in shares for name in share) == sorted(names)
        assert len(shares) == min(processes, len(names))


@pytest.mark.parametrize("helpful", [True, False])
def test_helpers_fill_the_cache(helpful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that fails is stood in for."""
    shares: list[list[str]] = []

    def start(names: list[str]) -> "subprocess.Popen[bytes]":
        shares.append(names)
        return subprocess.Popen([sys.executable, "-c", PROGRAM if helpful else "exit(1)", *names])

    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path))
    monkeypatch.setattr(linking, "processes_for", lambda names: 2)
    monkeypatch.setattr(linking, "start", start)
    told: list[tuple[str, int, int]] = []
    linked = Library(tmp_path / "kernels")
    linked.prepare(NAMES, lambda *news: told.append(news))
    assert len(shares) == 1 and len(shares[0]) == len(NAMES) // 2
    assert all(linked[name].params for name in NAMES)
    assert [done for _, done, _ in told] == list(range(len(NAMES) + 1))
    assert len(list(tmp_path.rglob("*.kernel"))) == len(NAMES)


# ---- what machine code depends on ---------------------------------------------------------------------------

HARMLESS = {"llamina.errors"}  # what it raises is no part of a kernel


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import of our own code in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path}: only absolute imports are followed"
            if node.module.split(".")[0] == "llamina":
                yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.split(".")[0] == "llamina")


def file_of(module: str, name: str) -> Path:
    """Where `from module import name` finds it: a module of a package, or the module itself."""
    inside = PACKAGE.parent.joinpath(*module.split("."))
    for path in (inside / f"{name}.py", inside / name / "__init__.py", inside.with_suffix(".py")):
        if path.exists():
            return path
    return inside / "__init__.py"


def unaccounted(known: list[Path]) -> list[str]:
    """What kernels import that is neither part of the fingerprint nor of no consequence."""
    return [
        f"{path.relative_to(PACKAGE)} imports {name} of {module}"
        for path in known
        for module, name in imported(path)
        if module not in HARMLESS and name not in CONSTANTS.get(module, {}) and file_of(module, name) not in known
    ]


def test_the_fingerprint_has_all_that_kernels_import() -> None:
    known = sources()
    assert unaccounted(known) == []
    assert any(path.name == "attention.py" for path in known)


@pytest.mark.parametrize("left_out", ["tiling.py", "features.py", "grids.py", "types.py", "codegen.py"])
def test_a_source_left_out_of_the_fingerprint_is_noticed(left_out: str) -> None:
    assert unaccounted([path for path in sources() if path.name != left_out])


# ---- files that are damaged, and folders that cannot be written --------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"no kernel at all",
        lambda data: b"[]\n" + data,
        lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
    ],
    ids=["cut", "empty", "other", "json", "bit"],
)
def test_a_damaged_kernel_is_compiled_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    Library(tmp_path).prepare(["scale"])
    [path] = tmp_path.rglob("*.kernel")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    compiled: list[str] = []
    again = Library(tmp_path)
    again.prepare(["scale"], lambda name, done, total: compiled.append(name))
    assert compiled == ["scale", ""] and again["scale"].params
    assert KernelFiles(tmp_path).read("scale") is not None


def test_a_cache_that_cannot_be_written_is_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled all the same, by this process alone: others could not hand theirs over."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    monkeypatch.setattr(linking, "processes_for", lambda names: 2)
    monkeypatch.setattr(linking, "start", lambda names: pytest.fail("nobody can help"))
    kernels = Library(tmp_path)
    with pytest.warns(RuntimeWarning, match="Read-only file system.*LLAMINA_CACHE") as told:
        kernels.prepare(["scale", "mul"])
    assert len(told) == 1 and kernels["mul"].params
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_disk_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe fits, the kernel does not."""
    make = tempfile.NamedTemporaryFile

    def small(*args: Any, **options: Any) -> Any:
        file = make(*args, **options)
        write = file.write

        def full(data: bytes) -> int:
            if len(data) > 100:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(write(data))

        file.write = full
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", small)
    kernels = Library(tmp_path)
    with pytest.warns(RuntimeWarning, match="No space left on device.*LLAMINA_CACHE") as told:
        kernels.prepare(["scale", "mul"])
    assert len(told) == 1 and kernels["mul"].params
    assert os.listdir(tmp_path / fingerprint()) == []
