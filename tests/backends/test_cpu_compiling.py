"""Kernels compiled by several processes and kept on disk: what they depend on, and what may happen to the files."""

import ast
import errno
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from llamina.backends.cpu.jit import linking
from llamina.backends.cpu.jit.cache import CONSTANTS, PACKAGE, KernelFiles, files_of, machine
from llamina.backends.cpu.jit.linking import Library
from llamina.backends.cpu.jit.processes import PROGRAM, share_out
from llamina.backends.cpu.kernels import MODULES

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


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import of our own code in a file, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path}: only absolute imports are followed"
            if node.module.split(".")[0] == "llamina":
                yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            assert not [a.name for a in node.names if a.name.split(".")[0] == "llamina"], f"{path}: use `from … import`"


@pytest.mark.parametrize("module", [*MODULES, "codegen"])
def test_a_kernels_files_are_all_that_it_imports(module: str) -> None:
    """Whatever a file imports is among the files, or named as a constant; the walk here is Python's own."""
    package = "llamina.backends.cpu." + ("jit." if module == "codegen" else "kernels.")
    known = files_of(package + module)
    assert len(known) > 2
    for path in known:
        for source, name in imported(path):
            if source in CONSTANTS:
                assert source == "llamina.errors" or name in CONSTANTS[source], f"{path} imports {name} of {source}"
            else:
                inside = getattr(find_spec(source), "submodule_search_locations", None)
                found = (find_spec(f"{source}.{name}") if inside else None) or find_spec(source)
                assert found and found.origin and Path(found.origin) in known, f"{path} imports {name} of {source}"


def test_an_edit_compiles_no_other_kernels_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attend, linear = (
        files_of("llamina.backends.cpu.kernels.attention.attend"),
        files_of("llamina.backends.cpu.kernels.matmul"),
    )
    names = [{path.relative_to(PACKAGE).as_posix() for path in files} for files in (attend, linear)]
    assert "backends/cpu/kernels/attention/rows.py" in names[0] - names[1]
    assert "backends/cpu/kernels/gemm/gemm.py" in names[1] - names[0]
    assert {"backends/cpu/kernels/vector/simd.py", "backends/cpu/features.py"} <= names[0] & names[1]
    assert {"backends/cpu/tiling.py", "quant/grids.py"} <= names[1] - names[0] and "gguf/types.py" not in names[1]


def test_every_kernel_is_where_it_is_said_to_be() -> None:
    for module, names in MODULES.items():
        table = import_module(f"llamina.backends.cpu.kernels.{module}").KERNELS
        assert {name.partition(".")[0] for name in table} == set(names)


# ---- the compiler --------------------------------------------------------------------------------------------

TRIED = ("0.63.1", "0.64.0", "0.65.1", "0.66.0", "0.67.0", "0.68.1")
"""Versions of numba that kernels were compiled and run with. What is private in numba may change with any other."""


def test_numba_is_bound_to_the_versions_that_were_tried() -> None:
    root = Path(__file__).parents[2]
    needed = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    [bound] = [line for line in needed if line.startswith("numba")]
    minors = [int(version.split(".")[1]) for version in TRIED]
    assert minors == list(range(minors[0], minors[-1] + 1)), "each of them"
    assert bound == f"numba>=0.{minors[0]},<0.{minors[-1] + 1}"
    assert int(version("numba").split(".")[1]) in minors


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
    assert compiled == ["compiling scale", ""] and again["scale"].params
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
    assert os.listdir(tmp_path / machine()) == []


def test_threads_link_a_kernel_once() -> None:
    """Engines may be loaded at the same moment: linking a kernel again would unload the code of the first."""
    code = """
import threading
import time
from llamina.backends.cpu.jit import library

names = ["rms_norm", "add", "mul", "copy", "gated.silu", "rope", "softmax", "fill"]
library().prepare(names)  # they are in the cache from here on
from llamina.backends.cpu.jit import linking

read, link = linking.KernelFiles.read, linking.Library._link
linking.KernelFiles.read = lambda files, name: (time.sleep(0.01), read(files, name))[1]  # so that threads meet
linking.Library._link = lambda kernels, name, code: (linked.append(name), link(kernels, name, code))[1]
linking._library.cache_clear()
gate, found, linked = threading.Barrier(4), [], []


def prepare():
    gate.wait()
    kernels = library()
    kernels.prepare(names)
    found.append(kernels)


threads = [threading.Thread(target=prepare) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(kernels is library() for kernels in found), "several libraries"
assert sorted(linked) == sorted(names), linked
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
