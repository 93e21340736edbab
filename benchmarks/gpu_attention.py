"""Time the attention kernel in several shapes and ways on this machine's GPU: python benchmarks/gpu_attention.py"""

import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

import numpy as np  # noqa: E402

from llamina.backends import Capacity, backend  # noqa: E402
from llamina.backends.cuda.bucket import Bucket  # noqa: E402
from llamina.backends.cuda.lowering import attention  # noqa: E402
from llamina.ops import Attention, attend, constant, embed, flat, heads, pick, split  # noqa: E402
from llamina.ops.batch import PAGE, Batch, Span  # noqa: E402
from llamina.plan import record  # noqa: E402

HEADS, KV_HEADS, DIM = 32, 8, 128
KERNELS = ("attention.attend", "attention.merge")
CASES = {
    "1 at 512": (1, 1, 512), "1 at 8192": (1, 1, 8192), "64 at 256": (64, 1, 256), "128 at 256": (128, 1, 256),
    "512 at 0": (1, 512, 0), "512 at 7680": (1, 512, 7680),
}  # fmt: skip


def forward(tokens: Any, positions: Any) -> Any:
    width = (HEADS + 2 * KV_HEADS) * DIM
    table = constant("table", np.random.default_rng(0).standard_normal((64, width)))
    q, k, v = split(embed(tokens, table), HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM)
    out = attend(heads(q, HEADS), heads(k, KV_HEADS), heads(v, KV_HEADS), 0, Attention(DIM**-0.5))
    return pick(split(flat(out), 64, HEADS * DIM - 64)[0])


def tuned(shape: Any, how: dict[str, int]) -> Any:
    """A tiling with some of its numbers changed; more rows are more tokens."""
    factor = how.get("rows", shape.rows) // shape.rows or 1
    return replace(shape, **how, tile=shape.tile * factor, tiles=-(-shape.tiles // factor) + factor)


def main() -> None:
    tiling = attention.tiling
    device: Any = backend("cuda")
    plan, batch = record(forward), Batch(512, 128, 128, 1024)
    choices = {
        "decode": [dict(zip(("block", "warps", "stages", "splits"), c, strict=True)) for c in
                   itertools.product((32, 64, 128), (2, 4), (2, 3), (1, 8, 32, 64))],
        "prefill": [dict(zip(("rows", "block", "warps", "stages"), c, strict=True)) for c in
                    itertools.product((64, 128), (64, 128), (4, 8), (2, 3))],
    }  # fmt: skip
    program = device.compile(plan, batch, Capacity(128 * 64, 128))
    found: list[tuple[str, dict[str, int], list[Any]]] = []
    for name, (count, new, depth) in CASES.items():
        pages = -(-(depth + new) // PAGE)
        spans = [Span([7] * new, depth, range(i * pages, (i + 1) * pages), i, [0]) for i in range(count)]
        program.launch(batch.fill(spans)).result()
        for how in choices["decode" if new == 1 else "prefill"]:
            attention.tiling = lambda *args, how=how: tuned(tiling(*args), how)  # type: ignore[misc]
            found.append((name, how, program._lower(Bucket.of(batch), program._readers).launches))
    kernels = {x.kernel for _, _, launches in found for x in launches}
    start = time.perf_counter()
    device.device.prepare(kernels)
    print(f"{len(kernels)} kernels in {time.perf_counter() - start:.0f} s", flush=True)
    results: dict[str, list[tuple[float, dict[str, int]]]] = {}
    for name, (count, new, depth) in CASES.items():
        pages = -(-(depth + new) // PAGE)
        spans = [Span([7] * new, depth, range(i * pages, (i + 1) * pages), i, [0]) for i in range(count)]
        program.launch(batch.fill(spans)).result()
        for how in choices["decode" if new == 1 else "prefill"]:
            attention.tiling = lambda *args, how=how: tuned(tiling(*args), how)  # type: ignore[misc]
            mine = [x for x in program._launches(Bucket.of(batch)).launches if x.kernel.name in KERNELS]
            graph, times = device.device.record(mine * 20), []
            for _ in range(4):
                device.device.synchronize()
                start = time.perf_counter()
                graph.replay()
                device.device.synchronize()
                times.append(time.perf_counter() - start)
            graph.close()
            results.setdefault(name, []).append((min(times) / 20 * 1e6, how))
        for us, how in sorted(results[name], key=lambda r: r[0])[:4]:
            print(f"{name:12s} {us:8.1f} us {how}", flush=True)


if __name__ == "__main__":
    main()
