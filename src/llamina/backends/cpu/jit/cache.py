"""Compiled kernels on disk, in a folder named after everything that their machine code depends on."""

import hashlib
import json
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from llamina.backends.cpu import features
from llamina.ops.batch import PAGE

PACKAGE = Path(__file__).parents[3]
SOURCES = (
    "backends/cpu/kernels/**/*.py",
    "backends/cpu/features.py",
    "backends/cpu/layout.py",
    "backends/cpu/tiling.py",
    "backends/cpu/jit/codegen.py",
    "gguf/types.py",
    "quant/bits.py",
    "quant/grids.py",
    "quant/microscale.py",
)
"""What kernels are written in and what they import, so that an edit of anything else compiles nothing again."""
CONSTANTS = {"llamina.ops.batch": {"PAGE": PAGE}}
"""Numbers that kernels import from modules which are otherwise of no consequence to them."""


def sources() -> list[Path]:
    """The files that machine code depends on."""
    return sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern))


@cache
def fingerprint() -> str:
    """A hash of what a compiled kernel depends on: its sources, the compiler, and this very CPU."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    compiler = [version("numba"), version("llvmlite"), platform.python_version()]
    cpu = [llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), features.used()]
    digest.update(json.dumps([CONSTANTS, *compiler, *cpu]).encode())
    return digest.hexdigest()[:16]


class KernelFiles:
    """The files of one fingerprint. A folder that cannot be written costs time, not the run: it is warned of once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / fingerprint()
        self._warned = False

    def read(self, name: str) -> tuple[dict[str, Any], bytes] | None:
        """A kernel's header and object code; None if the file is missing or damaged."""
        try:
            return unpack((self._folder / f"{name}.kernel").read_bytes())
        except OSError:
            return None

    def writable(self) -> bool:
        """Whether kernels can be kept, as far as a small file can tell."""
        return self._try(lambda: _write(self._folder, b"\0").unlink())

    def write(self, name: str, packed: bytes) -> None:
        """Keep a kernel, if the folder can be written."""
        self._try(lambda: _replace(self._folder / f"{name}.kernel", packed))

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
