"""What a person sees of a GPU: quality of a real file, `llamina serve` beside its engine, the time to a first token.

Sections of `gpu.py`; they need a model (`--model`) or real files (`--real`).
"""

import argparse
import lzma
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import llamina
from llamina.bench.perplexity import measure_perplexity

ROOT = Path(__file__).parents[1]
STREAMS, TOKENS, WAVES, TURNS = 64, 128, 2, 5
WINDOW, WINDOWS = 512, 16
Row = dict[str, Any]


def perplexity(args: argparse.Namespace) -> list[Row]:
    """Real files on the GPU and on the CPU, by llama.cpp's definition: at most 0.5 % apart."""
    text = lzma.decompress((ROOT / "tests" / "golden" / "GPL-3.txt.xz").read_bytes()).decode()
    return [_compared(file, text, args.backend) for file in args.real]


def _compared(file: str, text: str, backend: str) -> Row:
    found = {}
    for name in (backend, "cpu"):
        with llamina.load(file, backend=name, context=WINDOW) as engine:
            measured = measure_perplexity(engine, text, WINDOW, lambda *_: None, chunks=WINDOWS)
            found[name] = measured.estimate.perplexity
    apart = abs(math.log(found[backend] / found["cpu"]))
    row = {"name": f"perplexity of {Path(file).name}", **found, "apart": apart, "ok": apart < 0.005}
    print(row, flush=True)
    return row


def serving(args: argparse.Namespace) -> list[Row]:
    """Streams through `llamina serve` and the same requests by the engine alone, in turns: at least 0.9 of its rate."""
    from serving import ours, over_http, own_rate

    rates: dict[str, list[float]] = {"engine": [], "server": []}
    sizes = {"context": 1024, "max_sequences": STREAMS}  # prompts are tried with texts of 685 tokens first
    with (
        llamina.load(args.model, backend=args.backend, **sizes) as engine,  # type: ignore[arg-type]
        ours(Path(args.model), STREAMS, sizes["context"], os.cpu_count() or 1, args.backend) as (url, _),
    ):
        for turn in range(TURNS + 1):  # the first warms both up
            total = WAVES * STREAMS
            own = own_rate(engine, "completions", STREAMS, TOKENS, total, turn)
            served = over_http(url, "completions", STREAMS, TOKENS, total, turn)["rate"]
            print(f"turn {turn}: engine {own:.0f}, server {served:.0f}, {served / own:.3f}", flush=True)
            if turn:
                rates["engine"].append(own)
                rates["server"].append(served)
    share = median(a / b for a, b in zip(rates["server"], rates["engine"], strict=True))
    medians = {name: round(median(found)) for name, found in rates.items()}
    return [{"name": f"serving {STREAMS} streams", **medians, "share": round(share, 3), "ok": share >= 0.9}]


def start(args: argparse.Namespace) -> list[Row]:
    """Seconds from the start of `llamina run` to its first token: with an empty kernel cache, then with a full one."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name, least in (("cold", 90.0), ("warm", 6.0), ("warm", 6.0), ("warm", 6.0)):
            seconds = _first_token(args, cache)
            rows.append({"name": f"start, {name}", "seconds": round(seconds, 2), "ok": seconds < least})
            print(rows[-1], flush=True)
    return rows


def _first_token(args: argparse.Namespace, cache: str) -> float:
    command = [sys.executable, "-m", "llamina", "run", "-m", args.model, "--backend", args.backend]
    environment = os.environ | {"LLAMINA_CACHE": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
    begun = time.perf_counter()
    with subprocess.Popen(
        [*command, "-c", "512", "-n", "4", "Once upon a time"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begun
        if not first:
            raise RuntimeError(process.stderr.read().decode())
    return seconds
