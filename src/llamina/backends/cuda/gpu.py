"""A GPU: memory, one stream of work, and graphs, by the CUDA driver."""

import ctypes
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ctypes import c_float, c_int, c_longlong, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import Progress
from llamina.backends.cuda import compiler
from llamina.backends.cuda.compiler import Code
from llamina.backends.cuda.device import Kernel, Launch
from llamina.backends.cuda.driver import (
    CAPTURE_RELAXED,
    EVENT_NO_TIMING,
    HOST_PORTABLE,
    MAJOR,
    MINOR,
    MOST_SHARED,
    PROCESSORS,
    SHARED_BYTES,
    STREAM_NON_BLOCKING,
    address,
    open_driver,
)
from llamina.backends.cuda.memory import Ref
from llamina.errors import KernelError, RequestError

STAGING = 32 << 20  # bytes of pinned memory that uploads of weights go through, twice

_THREAD = threading.local()  # has the context that a thread works with, of the last GPU that it entered


class Gpu:
    """Calls come back before the work is done, unless they read. With a `stream`, work is done on the caller's."""

    interpreted = False

    def __init__(self, index: int = 0, stream: int | None = None) -> None:
        self._driver = open_driver()
        count = self._driver.device_count()
        if index >= count:
            raise RequestError(f"backend='cuda' needs an NVIDIA GPU: the driver shows {count}", "backend")
        device = self._driver.number("cuDeviceGet", index)
        self.index, self.name = index, self._driver.device_name(device)
        self._context = self._driver.make("cuDevicePrimaryCtxRetain", device)
        self.processors, major, minor, self._shared = (
            self._driver.number("cuDeviceGetAttribute", attribute, device)
            for attribute in (PROCESSORS, MAJOR, MINOR, MOST_SHARED)
        )
        self.target = 10 * major + minor
        self.early, self.fp8 = self.target >= 90, self.target >= 89
        self.enter()
        self.stream: int = stream or self._driver.make("cuStreamCreate", STREAM_NON_BLOCKING)
        # Engines of other threads go on with their work while one is recording.
        self._recording: int = self._driver.make("cuStreamCreate", STREAM_NON_BLOCKING)
        self._lock = threading.Lock()
        self._loaded: dict[Kernel, tuple[int, Code]] = {}
        self._pinned: list[int] = []
        self._staging = [(self.pinned(STAGING), GpuMark(self)) for _ in range(2)]

    def enter(self) -> None:
        """Make the calling thread one that works with this GPU."""
        if getattr(_THREAD, "context", None) != self._context:
            self._driver.call("cuCtxSetCurrent", c_void_p(self._context))
            _THREAD.context = self._context

    def free_bytes(self) -> int:
        self.enter()
        return self._driver.memory()[0]

    # ---- memory --------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        self.enter()
        found = self._driver.make("cuMemAlloc_v2", ctypes.c_size_t(nbytes))
        self._driver.call("cuMemsetD8Async", address(found), 0, ctypes.c_size_t(nbytes), c_void_p(self.stream))
        return found

    def free(self, at: int) -> None:
        self.synchronize()
        self._driver.call("cuMemFree_v2", address(at))

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        self.enter()
        found = self._driver.make("cuMemHostAlloc", ctypes.c_size_t(max(1, nbytes)), HOST_PORTABLE)
        self._pinned.append(found)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(found))

    def write(self, at: int, data: npt.NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        for start in range(0, flat.nbytes, STAGING):
            part = flat[start : start + STAGING]
            with self._lock:
                block, mark = self._staging[0]
                self._staging.reverse()
                mark.wait()
                block[: part.nbytes] = part
                self.upload(block[: part.nbytes], at + start)
                mark.set()

    def read(self, at: int, nbytes: int) -> npt.NDArray[np.uint8]:
        self.synchronize()
        target = np.empty(nbytes, np.uint8)
        self._driver.call("cuMemcpyDtoH_v2", c_void_p(target.ctypes.data), address(at), ctypes.c_size_t(nbytes))
        return target

    def upload(self, source: npt.NDArray[np.uint8], at: int) -> None:
        self.enter()
        self._driver.call(
            "cuMemcpyHtoDAsync_v2", address(at), c_void_p(source.ctypes.data), ctypes.c_size_t(source.nbytes),
            c_void_p(self.stream),
        )  # fmt: skip

    def download(self, at: int, target: npt.NDArray[np.uint8]) -> None:
        self.enter()
        self._driver.call(
            "cuMemcpyDtoHAsync_v2", c_void_p(target.ctypes.data), address(at), ctypes.c_size_t(target.nbytes),
            c_void_p(self.stream),
        )  # fmt: skip

    def copy(self, source: int, target: int, nbytes: int) -> None:
        self.enter()
        self._driver.call(
            "cuMemcpyDtoDAsync_v2", address(target), address(source), ctypes.c_size_t(nbytes), c_void_p(self.stream)
        )

    # ---- work ----------------------------------------------------------------------------------------------------

    def compiled(self, kernels: Iterable[Kernel]) -> bool:
        return not compiler.missing(kernels, self.target)

    def compile(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        compiler.compile_all(compiler.missing(kernels, self.target), self.target, progress)

    def prepare(self, kernels: Iterable[Kernel], progress: Progress | None = None) -> None:
        self.enter()
        wanted = [kernel for kernel in kernels if kernel not in self._loaded]
        for kernel, code in compiler.prepare(wanted, self.target, progress).items():
            module = self._driver.make("cuModuleLoadData", code.binary)
            function = self._driver.make("cuModuleGetFunction", c_void_p(module), code.entry.encode())
            if code.shared > self._shared:
                raise KernelError(
                    f"{kernel} needs {code.shared} bytes of shared memory, and {self.name} has {self._shared}"
                )
            if code.shared > 48 << 10:
                self._driver.call("cuFuncSetAttribute", c_void_p(function), SHARED_BYTES, code.shared)
            self._loaded[kernel] = function, code

    def run(self, launches: Sequence[Launch]) -> None:
        self._launch(launches, self.stream)

    def _launch(self, launches: Sequence[Launch], stream: int) -> None:
        self.enter()
        for launch in launches:
            function, code = self._loaded[launch.kernel]
            types = dict(launch.kernel.types)
            values = [_value(launch.args[name], types[name]) for name in code.params]
            values += [c_void_p(0), c_void_p(0)]  # Triton's scratch memory, of which there is none
            pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            self._driver.launch(function, launch.grid, code.threads, code.shared, stream, launch.kernel.early, pointers)

    def record(self, launches: Sequence[Launch]) -> "GpuGraph":
        self.enter()
        stream = c_void_p(self._recording)
        with self._lock:
            self._driver.call("cuStreamBeginCapture_v2", stream, CAPTURE_RELAXED)
            try:
                self._launch(launches, self._recording)
            except BaseException:
                with suppress(KernelError):  # a capture must be ended, and says once more that it failed
                    self._driver.make_second("cuStreamEndCapture", stream)
                raise
            return GpuGraph(self, self._driver.make_second("cuStreamEndCapture", stream))

    def mark(self) -> "GpuMark":
        mark = GpuMark(self)
        mark.set()
        return mark

    def synchronize(self) -> None:
        self.enter()
        self._driver.call("cuStreamSynchronize", c_void_p(self.stream))


class GpuMark:
    """An event of the stream; one that was never set is past."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._event = gpu._driver.make("cuEventCreate", EVENT_NO_TIMING)

    def set(self) -> None:
        self._gpu._driver.call("cuEventRecord", c_void_p(self._event), c_void_p(self._gpu.stream))

    def wait(self) -> None:
        self._gpu.enter()
        self._gpu._driver.call("cuEventSynchronize", c_void_p(self._event))

    def __del__(self) -> None:
        self._gpu._driver.call("cuEventDestroy_v2", c_void_p(self._event))


class GpuGraph:
    """Launches that the driver knows as one."""

    def __init__(self, gpu: Gpu, graph: int) -> None:
        self._gpu = gpu
        self._ready = gpu._driver.make("cuGraphInstantiateWithFlags", c_void_p(graph), ctypes.c_ulonglong(0))
        gpu._driver.call("cuGraphDestroy", c_void_p(graph))

    def replay(self) -> None:
        self._gpu.enter()
        self._gpu._driver.call("cuGraphLaunch", c_void_p(self._ready), c_void_p(self._gpu.stream))

    def close(self) -> None:
        self._gpu.synchronize()
        self._gpu._driver.call("cuGraphExecDestroy", c_void_p(self._ready))


def _value(argument: Ref | int | float, kind: str) -> Any:
    if isinstance(argument, Ref):
        return c_void_p(argument.address)
    if kind == "fp32":
        return c_float(argument)
    return c_longlong(int(argument)) if kind == "i64" else c_int(int(argument))
