"""From a kernel's Python function to object code: numba → LLVM → the machine's own instructions.

What is private in numba and llvmlite is used here and in `kernels/` alone: `Dispatcher.overloads`, the compile result's
`library.get_llvm_str()` and `fndesc.llvm_func_name`; numba's calling convention (`_plain_entry`); and, in kernels,
`numba.core.cgutils` and intrinsics that return LLVM vectors. `pyproject.toml` bounds numba's version for that reason.
"""

import hashlib
import inspect
import json
from typing import Any

import llvmlite.binding as llvm

from llamina.backends.cpu.jit.stores import stored_params
from llamina.errors import KernelError

ENTRY = "llamina_entry"


def compile_kernel(name: str) -> bytes:
    """A kernel's object code behind a line of JSON: the names of its parameters, and the code's SHA-256.

    Raises KernelError if there is no kernel of that name.
    """
    llvm.initialize_native_asmparser()
    text, header = kernel_ir(name)
    code = target_machine().emit_object(llvm.parse_assembly(text))
    header["sha256"] = hashlib.sha256(code).hexdigest()
    return json.dumps(header).encode() + b"\n" + bytes(code)


def kernel_ir(name: str) -> tuple[str, dict[str, Any]]:
    """A kernel as LLVM's text, and the names of its parameters: all (`params`), the floats among them (`floats`), those
    that it is declared to write (`writes`) and those that its code stores through (`stores`).

    Raises KernelError if it is declared to write what it does not.
    """
    from numba import types

    from llamina.backends.cpu.kernels import find

    function: Any = find(name)
    parameters = list(inspect.signature(getattr(function, "py_func", function)).parameters.values())[2:]
    names = [p.name for p in parameters if p.name != "worker"]
    floats = [p.name for p in parameters if p.annotation is float]
    text, symbol = _llvm_ir(_entry(function, [p.name for p in parameters], floats), types)
    stores, escapes = stored_params(text, symbol, names)
    if idle := set(function.writes) - {*stores, *escapes}:
        raise KernelError(f"kernel {name} is declared to write {sorted(idle)} and does not store through it")
    header = {"params": names, "floats": floats, "writes": function.writes, "stores": stores}
    return text + _plain_entry(symbol), header


def _entry(function: Any, names: list[str], floats: list[str]) -> Any:
    """A function of (arguments, part, parts, worker) that reads the 8-byte slots and calls the kernel."""
    from llamina.backends.cpu.kernels.vector import memory

    slots = [name for name in names if name != "worker"]
    reads = {name: f"{'f64' if name in floats else 'i64'}(a + {8 * i})" for i, name in enumerate(slots)}
    passed = ", ".join(["part", "parts", *(reads.get(name, name) for name in names)])
    scope = {"kernel": function, "i64": memory.i64, "f64": memory.f64}
    exec(f"def entry(a, part, parts, worker):\n    return kernel({passed})\n", scope)
    return scope["entry"]


def _llvm_ir(entry: Any, types: Any) -> tuple[str, str]:
    """The text of the entry's module, and the name of the entry in it."""
    import numba

    from llamina.backends.cpu.kernels.device import FLAGS

    signature = (types.intp,) * 4
    compiled: Any = numba.njit(signature, **FLAGS)(entry).overloads[signature]
    return compiled.library.get_llvm_str(), compiled.fndesc.llvm_func_name


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


def target_machine() -> Any:
    """This CPU, as LLVM compiles and links for it."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )
