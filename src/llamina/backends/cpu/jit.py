"""Kernels by name: from the disk cache as object code, else compiled by numba and kept there.

A start that finds all its kernels in the cache links them with llvmlite and never imports numba.
"""

import hashlib
import inspect
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from llamina.backends.cpu import features  # asks for registers that kernels from the cache need too
from llamina.backends.cpu.compiling import processes_for, share_out, start
from llamina.errors import KernelError
from llamina.places import cache_dir

ENTRY = "llamina_entry"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Native code of signature (arguments, part, parts, worker) → int, and the names of its arguments in order."""

    address: int
    params: tuple[str, ...]
    floats: frozenset[str]


class Library:
    """All kernels this process has linked so far. Get it from `library()`: code is never unloaded."""

    def __init__(self, folder: Path) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._folder = folder / fingerprint()
        self._linker = llvm.create_lljit_compiler(_machine())
        self._linked: dict[str, tuple[Kernel, Any]] = {}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._linked:
            self.prepare([name])
        return self._linked[name][0]

    def prepare(self, names: Iterable[str], progress: Progress | None = None) -> None:
        """Link kernels, compiling those that are not in the cache; `progress(name, done, total)` before each."""
        missing = []
        for name in dict.fromkeys(names):
            if name not in self._linked and not self._link(name, _read(self._path(name))):
                missing.append(name)
        if not missing:
            return
        mine, *others = share_out(missing, processes_for(missing))
        helpers = [start(share) for share in others]
        try:
            for done, name in enumerate([*mine, *(name for share in others for name in share)]):
                if progress:
                    progress(name, done, len(missing))
                if done == len(mine):
                    for helper in helpers:
                        helper.wait()
                if not self._link(name, _read(self._path(name)) or self.compile(name)):
                    raise KernelError(f"kernel {name} was compiled but cannot be linked")
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()
        if progress:
            progress("", len(missing), len(missing))

    def compile(self, name: str) -> bytes:
        """A kernel compiled, and kept in the cache."""
        packed = compile_kernel(name)
        _write(self._path(name), packed)
        return packed

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.kernel"

    def _link(self, name: str, packed: bytes | None) -> bool:
        unpacked = _unpack(packed)
        if unpacked is None:
            return False
        header, code = unpacked
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(ENTRY)
        linked = builder.link(self._linker, name)
        kernel = Kernel(linked[ENTRY], tuple(header["params"]), frozenset(header["floats"]))
        self._linked[name] = kernel, linked
        return True


@cache
def _library(folder: Path) -> Library:
    return Library(folder)


def library() -> Library:
    """The process's kernels: immutable code, shared by all engines."""
    return _library(cache_dir() / "kernels")


@cache
def fingerprint() -> str:
    """What a compiled kernel depends on: our kernel sources, the compiler, and this very CPU."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sorted([*(package / "backends/cpu").rglob("*.py"), *(package / "quant").glob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    compiler = [version("numba"), version("llvmlite"), platform.python_version()]
    cpu = [llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), features.used()]
    digest.update(json.dumps(compiler + cpu).encode())
    return digest.hexdigest()[:16]


def compile_kernel(name: str) -> bytes:
    """Python function → numba → LLVM → object code, packed with the names of its arguments."""
    llvm.initialize_native_asmparser()
    text, header = kernel_ir(name)
    code = _machine().emit_object(llvm.parse_assembly(text))
    header["sha256"] = hashlib.sha256(code).hexdigest()
    return json.dumps(header).encode() + b"\n" + bytes(code)


def kernel_ir(name: str) -> tuple[str, dict[str, Any]]:
    """A kernel as LLVM's text, and what the names of its arguments are."""
    from numba import types

    from llamina.backends.cpu.kernels import find

    function = find(name)
    parameters = list(inspect.signature(getattr(function, "py_func", function)).parameters.values())[2:]
    names = [p.name for p in parameters if p.name != "worker"]
    floats = [p.name for p in parameters if p.annotation is float]
    text, symbol = _llvm_ir(_entry(function, [p.name for p in parameters], floats), types)
    return text + _plain_entry(symbol), {"params": names, "floats": floats}


def _entry(function: Any, names: list[str], floats: list[str]) -> Any:
    """A function of (arguments, part, parts, worker) that reads the 8-byte slots and calls the kernel."""
    from llamina.backends.cpu.kernels import memory

    slots = [name for name in names if name != "worker"]
    reads = {name: f"{'f64' if name in floats else 'i64'}(a + {8 * i})" for i, name in enumerate(slots)}
    passed = ", ".join(["part", "parts", *(reads.get(name, name) for name in names)])
    scope = {"kernel": function, "i64": memory.i64, "f64": memory.f64}
    exec(f"def entry(a, part, parts, worker):\n    return kernel({passed})\n", scope)
    return scope["entry"]


def _llvm_ir(entry: Any, types: Any) -> tuple[str, str]:
    import numba

    signature = (types.intp,) * 4
    compiled: Any = numba.njit(signature, **FLAGS)(entry).overloads[signature]
    return compiled.library.get_llvm_str(), compiled.fndesc.llvm_func_name


FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    # No fastmath: contraction and reassociation would round differently from kernel to kernel.
}


def _plain_entry(symbol: str) -> str:
    """A C function around numba's calling convention."""
    return f"""
define i64 @{ENTRY}(i64 %a, i64 %part, i64 %parts, i64 %worker) {{
  %result = alloca i64
  %error = alloca ptr
  store i64 0, ptr %result
  %status = call i32 @{symbol}(ptr %result, ptr %error, i64 %a, i64 %part, i64 %parts, i64 %worker)
  %value = load i64, ptr %result
  ret i64 %value
}}
"""


def _machine() -> Any:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _write(path: Path, packed: bytes) -> None:
    """Atomically; a cache that cannot be written costs time, not the run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(packed)
        os.replace(file.name, path)
    except OSError:
        return


def _unpack(packed: bytes | None) -> tuple[dict[str, Any], bytes] | None:
    """None for a file that is missing or damaged: it is compiled again."""
    if not packed:
        return None
    line, _, code = packed.partition(b"\n")
    try:
        header = json.loads(line)
    except ValueError:
        return None
    return (header, code) if header.get("sha256") == hashlib.sha256(code).hexdigest() else None
