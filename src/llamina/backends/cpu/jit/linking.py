"""Kernels by name: from the disk cache as object code, else compiled by numba and kept there.

A start that finds all its kernels in the cache links them with llvmlite and never imports numba.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from llamina.backends.cpu.jit.cache import KernelFiles, unpack
from llamina.backends.cpu.jit.codegen import ENTRY, compile_kernel, target_machine
from llamina.backends.cpu.jit.processes import processes_for, share_out, start
from llamina.errors import KernelError
from llamina.places import cache_dir

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Native code of signature (arguments, part, parts, worker) → int, and the names of its parameters."""

    address: int
    params: tuple[str, ...]  # in order
    floats: frozenset[str]
    writes: frozenset[str]  # as declared
    stores: frozenset[str]  # as found in its code, with integers that are part of addresses


class Library:
    """All kernels this process has linked so far. Get it from `library()`: code is never unloaded."""

    def __init__(self, folder: Path) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._files = KernelFiles(folder)
        self._linking = threading.Lock()  # linking a kernel again would unload the first one's code
        self._linker = llvm.create_lljit_compiler(target_machine())
        self._linked: dict[str, tuple[Kernel, Any]] = {}

    def __getitem__(self, name: str) -> Kernel:
        """A linked kernel, compiled if need be. Raises KernelError if there is none of that name."""
        if name not in self._linked:
            self.prepare([name])
        return self._linked[name][0]

    def prepare(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Link kernels, compiling those that are not in the cache; `progress(what, done, total)` before each.

        Threads take turns. Raises KernelError if there is no kernel of a name.
        """
        with self._linking:
            self._prepare(names, progress)

    def _prepare(self, names: Iterable[str], progress: Progress | None) -> None:
        missing = [name for name in dict.fromkeys(names) if name not in self._linked and not self._link_cached(name)]
        if not missing:
            return
        # Processes hand kernels over in the cache: without one, this process compiles all of them.
        mine, *others = share_out(missing, processes_for(missing) if self._files.writable() else 1)
        helpers = [start(share) for share in others]
        try:
            for done, name in enumerate([*mine, *(name for share in others for name in share)]):
                if progress:
                    progress(f"compiling {name}", done, len(missing))
                if done == len(mine):
                    for helper in helpers:
                        helper.wait()
                if done < len(mine) or not self._link_cached(name):
                    self._link(name, unpack(self.compile(name)))
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()
        if progress:
            progress("", len(missing), len(missing))

    def compile(self, name: str) -> bytes:
        """Compile a kernel and keep it in the cache; returns what is kept."""
        packed = compile_kernel(name)
        self._files.write(name, packed)
        return packed

    def _link_cached(self, name: str) -> bool:
        """Whether the kernel was in the cache, and is linked now."""
        kept = self._files.read(name)
        if kept is not None:
            self._link(name, kept)
        return kept is not None

    def _link(self, name: str, unpacked: tuple[dict[str, Any], bytes] | None) -> None:
        if unpacked is None:
            raise KernelError(f"kernel {name} was compiled but cannot be linked")
        header, code = unpacked
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(ENTRY)
        linked = builder.link(self._linker, name)
        named = (frozenset(header[kind]) for kind in ("floats", "writes", "stores"))
        kernel = Kernel(linked[ENTRY], tuple(header["params"]), *named)
        self._linked[name] = kernel, linked


@cache
def _library(folder: Path) -> Library:
    return Library(folder)


_making = threading.Lock()  # `cache` would make two for two threads, and keep one


def library() -> Library:
    """The process's kernels: immutable code, shared by all engines."""
    with _making:
        return _library(cache_dir() / "kernels")
