"""Quantizes tensors with the CPU's compiled encoders: rows shared out among threads, a few at a time as float32."""

import ctypes
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.backends.cpu.jit import Kernel, Progress, library
from llamina.backends.cpu.kernels import MODULES
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf.types import TensorType
from llamina.quant import decode, encode
from llamina.quant.neighbours import search_tables
from llamina.quant.scales import HALVES

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
AT_ONCE = 1 << 16  # numbers that a thread holds as float32
LARGEST = 1e9  # sums of powers of larger numbers leave the range of float32
PART = 1 << 23  # numbers that are encoded before they are handed on
Function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)

ENCODED = tuple(
    name.removeprefix("encode_").upper() for names in MODULES.values() for name in names if name.startswith("encode_")
)
"""The block formats that can be written."""
NEEDS_IMPORTANCES = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
IGNORES_IMPORTANCES = ("Q8_0", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0")


def kernel_name(kind: TensorType, weighted: bool) -> str:
    """The name of an encoder. Raises UnsupportedModel if there is none, RequestError if it needs importances."""
    if kind.name not in ENCODED:
        raise UnsupportedModel(f"{kind.name} cannot be written: the block formats that can are {', '.join(ENCODED)}")
    if kind.name in NEEDS_IMPORTANCES and not weighted:
        raise RequestError(f"{kind.name} needs importances: give an imatrix", "imatrix")
    return f"encode_{kind.name.lower()}" + ".weighted" * (weighted and kind.name not in IGNORES_IMPORTANCES)


@dataclass(frozen=True, slots=True)
class Job:
    """Rows to quantize: uint8 [rows, bytes of a row] of type `source`; float32 importances of the rows' columns."""

    data: Bytes
    source: TensorType
    target: TensorType
    importances: Floats | None = None


class Encoder:
    """Threads that quantize. Use it as a context manager; results come in order."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "llamina-encode")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def encode(self, job: Job) -> Bytes:
        """Quantize rows at once: uint8 [rows, bytes of a row]. Raises what `parts` raises."""
        return np.concatenate(list(self.parts(job)))

    def parts(self, job: Job) -> Iterator[Bytes]:
        """Yield the rows quantized, a part at a time; the next one is under way meanwhile.

        Raises RequestError for NaN, infinity and scales that float16 cannot hold, UnsupportedModel for a format that
        cannot be written.
        """
        width = job.data.shape[1] // job.source.nbytes * job.source.block
        rows = max(1, AT_ONCE // width)
        per_part = max(1, PART // (rows * width)) * rows
        waiting: deque[tuple[Bytes, list[Future[None]]]] = deque()
        for start in range(0, len(job.data), per_part):
            stop = min(start + per_part, len(job.data))
            out = np.empty((stop - start, width // job.target.block * job.target.nbytes), np.uint8)
            tasks = [
                self._pool.submit(_encode, job, slice(at, min(at + rows, stop)), out[at - start : at - start + rows])
                for at in range(start, stop, rows)
            ]
            waiting.append((out, tasks))
            if len(waiting) > 1:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())


def prepare(kinds: list[tuple[TensorType, bool]], progress: Progress | None = None) -> None:
    """Compile the encoders of formats, with or without importances, unless they are in the cache."""
    names = [kernel_name(kind, weighted) for kind, weighted in kinds if kind.block > 1]
    library().prepare([*names, "embed.F16", "embed.BF16"], progress)


def _finished(out: Bytes, tasks: list[Future[None]]) -> Bytes:
    for task in tasks:
        task.result()
    return out


def _encode(job: Job, rows: slice, out: Bytes) -> None:
    values = _floats(job.data[rows], job.source)
    if job.target.block == 1:
        out[:] = encode(values, job.target)
        return
    if not max(-values.min(), values.max()) < LARGEST:
        raise RequestError(
            f"it holds NaN, infinity or a number above {LARGEST:g}, which {job.target.name} cannot", "type"
        )
    weights = job.importances
    kernel = library()[kernel_name(job.target, weights is not None)]
    factors = 0 if weights is None else weights.ctypes.data
    # Held until the kernel is done: threads that ask at once may each get tables of their own.
    tables = search_tables(job.target.name) if "tables" in kernel.params else None
    rows_of = {"x": values.ctypes.data, "out": out.ctypes.data, "rows": len(values), "width": values.shape[1]}
    _call(kernel, **rows_of, w=factors, tables=0 if tables is None else tables.ctypes.data)
    blocks = out.reshape(-1, job.target.nbytes)
    for at in HALVES.get(job.target.name, ()):
        if (blocks[:, at + 1] & 0x7C == 0x7C).any():
            raise RequestError(f"its scales are too large for {job.target.name}: use BF16 or F32", "type")


def _floats(data: Bytes, kind: TensorType) -> Floats:
    """Rows as float32."""
    if kind.name not in ("F16", "BF16"):
        return decode(data, kind)
    count, ids = np.array([len(data)], np.int64), np.arange(len(data), dtype=np.int32)
    width, source = data.shape[1] // 2, np.ascontiguousarray(data)
    values = np.empty((len(data), width), np.float32)
    _call(
        library()[f"embed.{kind.name}"], count=count.ctypes.data, each=1, ids=ids.ctypes.data, w=source.ctypes.data,
        out=values.ctypes.data, out_row=4 * width, width=width,
    )  # fmt: skip
    return values


def _call(kernel: Kernel, **args: int) -> None:
    """Run all of a kernel in this thread, without the GIL. Arguments are numbers and addresses."""
    slots = np.array([args[name] for name in kernel.params], np.int64)
    Function(kernel.address)(slots.ctypes.data, 0, 1, 0)
