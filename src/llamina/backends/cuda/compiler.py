"""Kernels compiled by Triton for a GPU that need not be there, and kept on disk as the GPU's own code.

A start that finds all its kernels in the cache never imports Triton. No C compiler is needed, and no torch.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llamina.backends import host
from llamina.backends.base import Progress
from llamina.backends.cuda.device import Kernel
from llamina.errors import KernelError, RequestError
from llamina.places import cache_dir

KERNELS = Path(__file__).parent / "kernels"
PACKAGE = "llamina.backends.cuda.kernels"
MOST = 16  # processes; each takes half a second to begin and a few hundred megabytes


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled kernel: machine code, the name of its entry, its parameters in order, and what a launch needs."""

    binary: bytes
    entry: str
    params: tuple[str, ...]
    threads: int
    shared: int  # bytes


def prepare(kernels: Iterable[Kernel], target: int, progress: Progress | None = None) -> dict[Kernel, Code]:
    """All of these kernels for compute capability `target` (90 is 9.0): from the cache, or compiled into it."""
    wanted = list(dict.fromkeys(kernels))
    compile_all(missing(wanted, target), target, progress)
    found: dict[Kernel, Code] = {}
    for kernel in wanted:
        code = _read(kernel, target)
        if code is None:
            raise KernelError(f"kernel {kernel} was compiled but is not in the cache {_folder()}: can it be written?")
        found[kernel] = code
    return found


def missing(kernels: Iterable[Kernel], target: int) -> list[Kernel]:
    """Those that are not in the cache."""
    return [kernel for kernel in dict.fromkeys(kernels) if _read(kernel, target) is None]


def compile_all(kernels: list[Kernel], target: int, progress: Progress | None = None) -> None:
    """Compile kernels into the cache, by several processes; `progress(what, done, total)` is called for each."""
    if not kernels:
        return
    count = min(host.usable_cores(), MOST, len(kernels))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(i)) for i in range(count)]
        workers = [_start(kernels[i::count], target, path) for i, path in enumerate(paths)]
        done = 0
        try:
            for worker, path in zip(workers, paths, strict=True):  # a line of theirs is a kernel done
                for line in worker.stdout or ():
                    if progress:
                        progress(f"compiling {line.strip()}", done, len(kernels))
                    done += 1
                if worker.wait():
                    errors = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    raise KernelError(f"Triton could not compile a kernel:\n{errors[-4000:]}")
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    if progress:
        progress("", len(kernels), len(kernels))


def _start(kernels: list[Kernel], target: int, path: Path) -> "subprocess.Popen[str]":
    """A process that compiles kernels into the cache."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TRITON_INTERPRET": "0"}
    path.write_text(json.dumps([asdict(kernel) for kernel in kernels]), encoding="utf-8")
    command = [sys.executable, "-m", __name__, str(target), str(path)]
    with path.with_suffix(".log").open("w") as errors:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)


def compile_kernel(kernel: Kernel, target: int) -> Code:
    """Compile here and now, by Triton, for a GPU of this compute capability."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    file, name = kernel.name.split(".")
    function = getattr(import_module(f"{PACKAGE}.{file}"), name)
    types, constants = dict(kernel.types), dict(kernel.constants)
    if set(function.arg_names) != types.keys() | constants.keys():
        odd = set(function.arg_names) ^ (types.keys() | constants.keys())
        raise KernelError(f"{kernel} is called with other arguments than it has: {sorted(odd)}")
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    values = {(function.arg_names.index(name),): value for name, value in constants.items()}
    aligned = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in kernel.aligned}
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages}
    source: Any = ASTSource(function, signature, values, aligned)
    compiled = triton.compile(source, GPUTarget("cuda", target, 32), options)
    facts = compiled.metadata
    if facts.global_scratch_size or facts.profile_scratch_size:
        raise KernelError(f"{kernel} wants scratch memory of its own, which launches do not give")
    params = tuple(name for name in function.arg_names if name in types)
    return Code(compiled.asm["cubin"], facts.name, params, 32 * facts.num_warps, facts.shared)


# ---- the cache ---------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return cache_dir() / "cuda"


def _path(kernel: Kernel, target: int) -> Path:
    """A kernel is known by its source, what it is compiled for, and the compiler."""
    facts = [_triton(), target, source_hash(kernel.name.split(".")[0]), asdict(kernel)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return _folder() / f"{kernel.name}.{digest[:24]}.cubin"


@cache
def _triton() -> str:
    try:
        return version("triton")
    except PackageNotFoundError as error:
        raise RequestError("backend='cuda' needs Triton: pip install 'llamina[cuda]'", "backend") from error


@cache
def source_hash(file: str) -> str:
    """Of a file of kernels and of those it imports."""
    text = (KERNELS / f"{file}.py").read_bytes()
    digest = hashlib.sha256(text)
    pattern = rf"^from {re.escape(PACKAGE)}\.(\w+) import|^from {re.escape(PACKAGE)} import ([\w, ]+)"
    for one, several in re.findall(pattern, text.decode(), re.MULTILINE):
        for name in [one] if one else re.split(r",\s*", several):
            digest.update(source_hash(name).encode())
    return digest.hexdigest()


def _read(kernel: Kernel, target: int) -> Code | None:
    """None for a file that is missing or damaged: it is compiled again."""
    path = _path(kernel, target)
    try:
        line, _, binary = path.read_bytes().partition(b"\n")
        facts = json.loads(line)
    except (OSError, ValueError):
        return None
    if facts.pop("sha256") != hashlib.sha256(binary).hexdigest():
        return None
    return Code(binary, facts["entry"], tuple(facts["params"]), facts["threads"], facts["shared"])


def _write(kernel: Kernel, target: int, code: Code) -> None:
    """Atomically."""
    facts = {"entry": code.entry, "params": code.params, "threads": code.threads, "shared": code.shared}
    facts |= _sources(kernel.name)
    facts["sha256"] = hashlib.sha256(code.binary).hexdigest()
    path = _path(kernel, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(json.dumps(facts).encode() + b"\n" + code.binary)
    os.replace(file.name, path)


def _sources(name: str) -> dict[str, str]:
    """What a kernel's code was made of, and by which compiler."""
    return {"source": source_hash(name.split(".")[0]), "triton": _triton()}


def stale(folder: Path) -> list[Path]:
    """Kernels in the cache that are of other sources or of another compiler."""
    return [path for path in sorted(folder.glob("*.cubin")) if not _is_current(path)]


def _is_current(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            facts: dict[str, object] = json.loads(file.readline())
        return _sources(path.name).items() <= facts.items()
    except (OSError, ValueError, AttributeError, RequestError):  # damaged, or of a file or compiler that is gone
        return False


def _kernel(facts: dict[str, Any]) -> Kernel:
    """As it was before JSON made lists of tuples."""
    pairs = {key: tuple((name, value) for name, value in facts[key]) for key in ("types", "constants")}
    return Kernel(**{**facts, **pairs, "aligned": tuple(facts["aligned"])})


def _work(target: int, path: Path) -> None:
    """Compile the kernels that a file lists, without Triton's own cache."""
    os.environ["TRITON_CACHE_DIR"] = str(path.parent / "triton")
    for facts in json.loads(path.read_text(encoding="utf-8")):
        kernel = _kernel(facts)
        _write(kernel, target, compile_kernel(kernel, target))
        print(kernel, flush=True)


if __name__ == "__main__":
    _work(int(sys.argv[1]), Path(sys.argv[2]))
