"""What a process of its own costs a model and gives back: its rate beside an engine in this process, and memory.

python benchmarks/worker.py smollm2 --threads 1 --tokens 32 --turns 21
"""

import argparse
import asyncio
import gc
import statistics
import time
from typing import Any

import psutil

from llamina import hub
from llamina.engine import load
from llamina.server.model import LocalModel, Model, WorkerModel

STREAMS = 16


def resident(process: psutil.Process) -> int:
    """MiB of a process and those it started."""
    found: int = sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
    return found >> 20


async def rate(model: Model, tokens: int) -> float:
    """Tokens a second of all streams together."""

    async def read(seed: int) -> int:
        options = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0.8, "seed": seed}
        async with model.generate(prompt="Once upon a time", options=options) as stream:
            return sum([len(chunk.tokens) async for chunk in stream])

    begun = time.perf_counter()
    made = sum(await asyncio.gather(*(read(seed) for seed in range(STREAMS))))
    return made / (time.perf_counter() - begun)


async def started(path: str, options: dict[str, Any]) -> WorkerModel:
    worker = WorkerModel(path, options)
    await worker.start()
    return worker


async def main(path: str, tokens: int, turns: int, options: dict[str, Any]) -> None:
    this = psutil.Process()
    before = resident(this)
    worker = await started(path, options)
    await rate(worker, tokens)
    used = resident(this)
    await worker.close()
    print(f"worker: {before} MiB before, {used} MiB loaded and used, {resident(this)} MiB after unloading")
    worker = await started(path, options)
    local = LocalModel(load(path, **options))
    await rate(local, tokens)
    pairs = [(await rate(local, tokens), await rate(worker, tokens)) for _ in range(turns)]
    own, other = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    ratios = [b / a for a, b in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"in this process {own:.0f} tokens/s, worker {other:.0f}; ratio {middle:.2f} (quartiles {low:.2f}, {high:.2f})"
    )
    await worker.close()
    used = resident(this)
    await local.close()
    del local
    gc.collect()
    print(f"engine in this process: {used} MiB loaded and used, {resident(this)} MiB after closing it")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--turns", type=int, default=21)
    asked = parser.parse_args()
    settings = {"context": 512, "max_sequences": STREAMS, "threads": asked.threads}
    asyncio.run(main(str(hub.find(asked.model)), asked.tokens, asked.turns, settings))
