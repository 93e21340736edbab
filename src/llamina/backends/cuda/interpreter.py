"""A device that is none: Triton's interpreter runs the kernels over memory of the host, for tests without a GPU.

Triton decides when it is imported whether functions are interpreted.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Progress
from llamina.backends.cuda.device import Kernel, Launch
from llamina.backends.cuda.memory import Ref
from llamina.errors import RequestError
from llamina.quant import decode, encode
from llamina.quant.e4m3 import decode_e4m3, encode_e4m3

ALIGN = 256
NAMES = {"fp32": "float32", "i32": "int32", "fp16": "float16", "bf16": "bfloat16", "u8": "uint8", "i8": "int8",
         "i64": "int64", "fp64": "float64"}  # fmt: skip

_ONE_AT_A_TIME = Lock()  # the interpreter holds the grid of the kernel that runs for all threads


class Interpreter:
    """Everything happens at once, so there is nothing to wait for."""

    name = "Triton's interpreter"
    index = 0
    processors = 4
    early = False
    fp8 = True
    stream = None
    interpreted = True

    def __init__(self) -> None:
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
            raise RequestError("Triton is imported already and compiles: set TRITON_INTERPRET=1 before", "backend")
        os.environ["TRITON_INTERPRET"] = "1"
        _mend_interpreter()
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}

    def free_bytes(self) -> int:
        return 1 << 32

    def allocate(self, nbytes: int) -> int:
        block = np.zeros(nbytes + ALIGN, np.uint8)
        address = -(-block.ctypes.data // ALIGN) * ALIGN
        self._memory[address] = block
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        return np.zeros(nbytes, np.uint8)

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        _bytes(address, flat.nbytes)[:] = flat

    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        return _bytes(address, nbytes).copy()

    def upload(self, source: npt.NDArray[np.uint8], address: int) -> None:
        self.write(address, source)

    def download(self, address: int, target: npt.NDArray[np.uint8]) -> None:
        target[:] = _bytes(address, target.nbytes)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        _bytes(target, nbytes)[:] = _bytes(source, nbytes)

    def compiled(self, kernels: Iterable[Kernel]) -> bool:
        return True

    def compile(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        self.prepare(kernels)

    def prepare(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        for kernel in kernels:
            _function(kernel.name)

    def run(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            args = {name: _Pointer(a) if isinstance(a, Ref) else a for name, a in launch.args.items()}
            with _ONE_AT_A_TIME:
                _function(launch.kernel.name)[launch.grid](**args, **dict(launch.kernel.constants))

    def record(self, launches: Sequence[Launch]) -> "_Replay":
        return _Replay(self, launches)

    def mark(self) -> "Interpreter":
        return self

    def wait(self) -> None:
        """All is done already."""


class _Replay:
    def __init__(self, device: Interpreter, launches: Sequence[Launch]) -> None:
        self._device, self._launches = device, launches

    def replay(self) -> None:
        self._device.run(self._launches)

    def close(self) -> None:
        """Nothing to give back."""


class _Pointer:
    """Looks to the interpreter like a tensor of torch, in the few ways in which it looks at one."""

    def __init__(self, ref: Ref) -> None:
        self._address, self.dtype = ref.address, NAMES[ref.type]

    def data_ptr(self) -> int:
        return self._address

    def _itself(self, *_: Any, **__: Any) -> "_Pointer":
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = storage_offset = size = stride = _itself


def _bytes(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@cache
def _function(name: str) -> Any:
    file, function = name.split(".")
    return getattr(import_module(f"llamina.backends.cuda.kernels.{file}"), function)


@cache
def _mend_interpreter() -> None:
    """Let Triton 3.6 work with NumPy 2.4, which no longer makes numbers of arrays of one element; and be quicker."""
    from triton.runtime import interpreter

    make_tensors, make_language = interpreter._patch_lang_tensor, interpreter._patch_lang

    def tensors(tensor: Any, scope: Any) -> None:
        make_tensors(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    @cache
    def language(function: Any) -> _Forever:
        make_language(function)  # once for each function, not for each of its calls
        return _Forever()

    interpreter._patch_lang_tensor, interpreter._patch_lang = tensors, language
    multiply = interpreter.InterpreterBuilder.create_dot

    def dot(self: Any, a: Any, b: Any, *args: Any) -> Any:
        return multiply(self, *(_widened(x, interpreter.TensorHandle) for x in (a, b)), *args)

    interpreter._convert_float, interpreter.InterpreterBuilder.create_dot = _convert, dot


def _widened(x: Any, made: Any) -> Any:
    """A tensor of the interpreter's; bfloat16, whose bits it would multiply, as float32."""
    from triton.language import float32

    return made(_convert(x.data, x.dtype, float32, None).view(np.float32), float32) if x.dtype.is_bf16() else x


def _convert(x: npt.NDArray[Any], source: Any, target: Any, rounding: Any) -> npt.NDArray[Any]:
    """Bits of floats as another type, rounded as a GPU does: Triton 3.6 cuts off, and does not carry in fp8."""
    shape, wide = x.shape, np.ascontiguousarray(x)
    if source.name == "fp8e4nv":
        wide = decode_e4m3(wide.view(np.uint8))
    elif source.name == "bf16":
        wide = decode(wide.view(np.uint8), "BF16")
    wide = wide.reshape(shape).astype(np.float32)
    if target.name == "fp8e4nv":
        return encode_e4m3(wide)
    if target.name == "bf16":
        return encode(wide, "BF16").view(np.uint16).reshape(shape)
    return wide.astype({"fp16": np.float16, "fp32": np.float32}[target.name])


class _Forever:
    """A patch of Triton's language that is not taken back."""

    def restore(self) -> None:
        """Nothing: in this process, all kernels are interpreted."""
