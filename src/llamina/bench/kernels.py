"""Every format's matrix product on its own: memory bandwidth of the GEMV, arithmetic rate of the GEMM."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, Program, backend
from llamina.bench.contestant import Progress
from llamina.bench.machine import header
from llamina.errors import RequestError
from llamina.ops import Value, Weight, embed, linear, pick
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import record
from llamina.quant import FORMATS, decode, encode, format_of

WIDTH = 4096
MANY_ROWS = 4096  # of the matrix that many tokens are multiplied with
POOL = 1024  # different blocks, repeated over the matrix
TABLE_ROWS = 16
DEVICE = "cpu"  # the backend that is measured
PLAIN = ("F32", "F16", "BF16")
LONG_ENOUGH = 0.02  # seconds: shorter runs are repeated within one measurement


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is multiplied, and how often."""

    nbytes: int = 64 << 20  # of the matrix that one token is multiplied with: more than a last-level cache
    tokens: int = 512
    repeats: int = 5


def kernel_formats() -> list[str]:
    """The formats that weights come in, floats first."""
    return sorted((f.name for f in FORMATS.values() if f.name in backend(DEVICE).formats), key=lambda n: n not in PLAIN)


def measure_kernels(
    formats: Sequence[str],
    threads: Sequence[int],
    sizes: Sizes,
    command: str,
    tick: Callable[[str], None],
    progress: Progress,
) -> dict[str, Any]:
    """The record of the rates of `formats`, each with each number of threads; RequestError if one is unknown."""
    known = kernel_formats()
    for name in formats:
        if name.upper() not in known:
            raise RequestError(f"{name!r} is not one of {', '.join(known)}", "format")
    beginning, results = header("kernels", command), []
    for name in formats or known:
        matrix = random_matrix(name.upper(), sizes.nbytes)
        for n in threads:
            tick(f"{matrix.format} with {n} threads" if n > 1 else f"{matrix.format} with 1 thread")
            results += _rates(matrix, n, sizes, progress)
    settings = {"bytes": sizes.nbytes, "tokens": sizes.tokens, "width": WIDTH, "repeats": sizes.repeats}
    devices = [backend(DEVICE, threads=n).describe() for n in threads]
    return {**beginning, "backends": devices, "settings": settings, "results": results}


def random_matrix(kind: str, nbytes: int) -> Weight:
    """Rows of random blocks, about as many bytes as asked for."""
    form = format_of(kind)
    row = WIDTH // form.block * form.nbytes
    rows = max(8, nbytes // row)
    return Weight(f"{kind}.weight", (rows, WIDTH), form, np.resize(_pool(kind), rows * row))


def _pool(kind: str) -> npt.NDArray[np.uint8]:
    """Blocks that decode to numbers of ordinary size: no kernel shall stumble over NaN or denormals."""
    form, rng = format_of(kind), np.random.default_rng(0)
    if kind in PLAIN:
        return encode(rng.standard_normal((POOL, form.block * WIDTH)).astype(np.float32) / 8, kind).reshape(-1)
    blocks = np.empty((0, form.nbytes), np.uint8)
    while len(blocks) < POOL:
        more = rng.integers(0, 256, (4 * POOL, form.nbytes), dtype=np.uint8)
        largest = np.abs(decode(more, form)).max(-1)
        blocks = np.concatenate([blocks, more[(largest > 1e-3) & (largest < 1e2)]])  # NaN fails both
    return blocks[:POOL].reshape(-1)


def _rates(matrix: Weight, threads: int, sizes: Sizes, progress: Progress) -> list[dict[str, Any]]:
    few = _runs(matrix, 1, threads, sizes.repeats, progress)
    rows = min(MANY_ROWS, matrix.shape[0])
    part = replace(matrix, shape=(rows, WIDTH), data=matrix.data[: matrix.data.nbytes // matrix.shape[0] * rows])
    many = _runs(part, sizes.tokens, threads, sizes.repeats, progress)
    macs = sizes.tokens * rows * WIDTH
    return [
        _result(matrix, 1, threads, few, matrix.data.nbytes / 1e9, "GB/s"),
        _result(matrix, sizes.tokens, threads, many, macs / 1e9, "GMAC/s"),
    ]


def _result(matrix: Weight, tokens: int, threads: int, runs: list[float], work: float, unit: str) -> dict[str, Any]:
    return {
        "name": f"{matrix.format} n{tokens} t{threads}",
        "engine": "llamina",
        "rate": work / median(runs),
        "unit": unit,
        "format": matrix.format.name,
        "tokens": tokens,
        "threads": threads,
        "seconds": runs,
    }


def _runs(matrix: Weight, tokens: int, threads: int, repeats: int, progress: Progress) -> list[float]:
    """Seconds of one multiplication, measured `repeats` times."""
    values = np.random.default_rng(1).standard_normal((TABLE_ROWS, WIDTH)).astype(np.float32)
    table = Weight("token_embd.weight", values.shape, format_of("F32"), encode(values, "F32").reshape(-1))

    def forward(ids: Value, positions: Value) -> Value:
        return linear(pick(embed(ids, table)), matrix)

    pages = -(-tokens // PAGE)
    batch = Batch(tokens, tokens, 1, pages)
    program = backend(DEVICE, threads=threads).compile(record(forward), batch, Capacity(pages, 1), progress)
    batch.fill([Span([i % TABLE_ROWS for i in range(tokens)], 0, range(pages), 0, range(tokens))])
    try:
        _seconds(program, batch, 1)  # the first touches memory
        times = max(1, round(LONG_ENOUGH / max(_seconds(program, batch, 1), 1e-6)))
        return [_seconds(program, batch, times) for _ in range(repeats)]
    finally:
        program.close()


def _seconds(program: Program, batch: Batch, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        program.launch(batch).result()
    return (time.perf_counter() - start) / times
