"""Compiled kernels on disk, under the names of everything that their machine code depends on.

The folder is named after the compiler and the CPU, a file after the sources of its kernel: its module and what that
imports. So an edit of anything else compiles nothing again.
"""

import hashlib
import json
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from llamina.backends.cpu import features
from llamina.backends.cpu.kernels import module_of
from llamina.errors import KernelError
from llamina.ops.batch import PAGE

PACKAGE = Path(__file__).parents[3]
IMPORT = re.compile(r"^ *from (llamina[.\w]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
CONSTANTS = {"llamina.ops.batch": {"PAGE": PAGE}, "llamina.errors": {}}
"""Modules that kernels import and that are of no consequence to their code, but for these numbers."""


@cache
def machine() -> str:
    """A hash of what all kernels depend on: the compiler, this very CPU, and how it is asked to compile."""
    compiler = [version("numba"), version("llvmlite"), platform.python_version()]
    cpu = [llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), features.used()]
    known = [CONSTANTS, *compiler, *cpu, source("llamina.backends.cpu.jit.codegen")]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


@cache
def source(module: str) -> str:
    """A hash of a module's source, and of all that it imports."""
    digest = hashlib.sha256()
    for path in sorted(files_of(module)):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + _text(path).encode())
    return digest.hexdigest()[:16]


def files_of(module: str) -> set[Path]:
    """The files of a module and of all that it imports."""
    found: set[Path] = set()
    waiting = [_file(module)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path)
    return found


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imports(path: Path) -> list[Path]:
    return [
        _file(module, name.split()[0])
        for module, several, one in IMPORT.findall(_text(path))
        if module not in CONSTANTS
        for name in (several or one).partition("#")[0].split(",")
        if name.strip()
    ]


@cache
def _file(module: str, name: str = "") -> Path:
    """Where `from module import name` finds it: a module of a package, or in the module itself."""
    inside = PACKAGE.parent.joinpath(*module.split("."))
    if (path := inside.with_suffix(".py")).is_file() or (path := inside / f"{name}.py").is_file():
        return path
    return inside / "__init__.py"


class KernelFiles:
    """The kernels of this machine. A folder that cannot be written costs time, not the run: it is warned of once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / machine()
        self._warned = False

    def read(self, name: str) -> tuple[dict[str, Any], bytes] | None:
        """A kernel's header and object code; None if the file is missing or damaged."""
        try:
            return unpack(self._path(name).read_bytes())
        except OSError:
            return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}-{source(module_of(name))}.kernel"

    def writable(self) -> bool:
        """Whether kernels can be kept, as far as a small file can tell."""
        return self._try(lambda: _write(self._folder, b"\0").unlink())

    def write(self, name: str, packed: bytes) -> None:
        """Keep a kernel, if the folder can be written."""
        self._try(lambda: _replace(self._path(name), packed))

    def _try(self, change: Callable[[], None]) -> bool:
        try:
            change()
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"compiled kernels cannot be kept in {self._folder} ({error.strerror}), so every start compiles "
                    "them again: make room there, or set LLAMINA_CACHE to a folder that can be written",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return False
        return True


def stale(folder: Path) -> list[Path]:
    """What this machine does not read: folders of other compilers and CPUs, and kernels of other sources."""
    own = folder / machine()
    others = [path for path in sorted(folder.glob("*")) if path != own]
    return others + [path for path in sorted(own.glob("*.kernel")) if not _is_current(path.stem)]


def _is_current(stem: str) -> bool:
    name, _, digest = stem.rpartition("-")
    try:
        return digest == source(module_of(name))
    except KernelError:  # there is no such kernel any more
        return False


def _write(folder: Path, data: bytes) -> Path:
    """A new file with this content; none is left behind if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            file.write(data)
            file.flush()
        except OSError:
            os.unlink(file.name)
            raise
    return Path(file.name)


def _replace(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    temporary = _write(path.parent, data)
    try:
        os.replace(temporary, path)
    except OSError:
        temporary.unlink()
        raise


def unpack(packed: bytes) -> tuple[dict[str, Any], bytes] | None:
    """A kernel's header and object code; None if these bytes are not what `compile_kernel` returned."""
    line, _, code = packed.partition(b"\n")
    try:
        header = json.loads(line)
        whole = header["sha256"] == hashlib.sha256(code).hexdigest()
    except (ValueError, TypeError, KeyError):
        return None
    return (header, code) if whole else None
