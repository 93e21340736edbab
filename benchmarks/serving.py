"""The server beside the engine it serves and beside llama.cpp's server, in turns.

    python benchmarks/serving.py --chat SmolLM2-135M-Instruct.Q4_1.gguf --tiny stories260K.gguf \\
        --llama-server llama.cpp/build/bin/llama-server

Four checks: 16 streams with a chat model within 5 % of the engine's own rate; 64 streams with a model so small that
the engine outruns any socket, at least half of the engine's own rate and twice llama.cpp's; the time to the first token
of a short prompt no worse than llama.cpp's; 1,000 idle keep-alive connections in less than 50 MB.
A table says in the end which of them hold; the exit code is 1 if one does not.
The clients run on the same machine, and what they need is missing to the servers. Without --llama-server the peer is
xllamacpp's server, a build for any CPU, which is slower than one for this CPU.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from math import inf
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psutil

from llamina.bench import Asked, llama_server, measure_url
from llamina.bench.machine import describe_machine
from llamina.bench.url.arrivals import Concurrency
from llamina.bench.url.measure import MANY
from llamina.bench.url.prompts import words, words_for
from llamina.engine import Engine, load
from llamina.engine.request import request_of
from llamina.engine.tasks.chat import prepare

PROMPT = 32  # tokens of a prompt, about
CONTEXT = 512  # tokens of a sequence
PROMISES = {  # of each check: results, the least and the most that they may be
    "chat": [("of the engine", 0.95, inf)],
    "tiny": [("of the engine", 0.5, inf), ("times llama-server", 2.0, inf)],
    "first": [("of llama-server's", 0.0, 1.0)],
    "idle": [("MB", -inf, 50.0)],
}
THEIRS = """
import sys, time, xllamacpp
path, sequences, context, threads = sys.argv[1], *map(int, sys.argv[2:])
p = xllamacpp.CommonParams()
p.model.path, p.verbosity, p.n_gpu_layers, p.port = path, -1, 0, 0
p.n_parallel, p.n_ctx = sequences, sequences * context
p.n_batch = p.n_ubatch = 512
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(p)
print("listening on", server.listening_address, file=sys.stderr, flush=True)
print("is ready", file=sys.stderr, flush=True)
time.sleep(1e6)
"""


@contextmanager
def process(command: list[str]) -> Iterator[tuple[str, int]]:
    """The address and the process id of a server that is ready."""
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert server.stderr is not None
        url = ""
        for line in server.stderr:
            if line.startswith("listening on"):
                url = line.split()[-1]
            if "is ready" in line:
                break
        else:
            raise SystemExit(f"{command[:4]} ended")
        rest = threading.Thread(target=lambda: deque(server.stderr or (), 0))  # a full pipe would stop the server
        rest.start()
        yield url, server.pid
    finally:
        server.terminate()
        server.wait(20)


def ours(path: Path, sequences: int, context: int, threads: int, backend: str = "cpu") -> Any:
    command = [sys.executable, "-m", "llamina", "serve", str(path), "--port", "0", "-t", str(threads)]
    command += ["--backend", backend]
    most = str(4 * sequences)  # a stream that ends and the next one may be under way together
    return process([*command, "-np", str(sequences), "-c", str(context), "--max-concurrent", most])


@contextmanager
def theirs(program: Path | None, path: Path, sequences: int, context: int, threads: int) -> Iterator[str]:
    """The address of llama.cpp's server: this program, else xllamacpp's."""
    if program is None:
        command = [sys.executable, "-c", THEIRS, str(path), str(sequences), str(context), str(threads)]
        with process(command) as (url, _):
            yield url
        return
    options = {"--model": path, "--parallel": sequences, "--ctx-size": sequences * context, "--threads": threads}
    options |= {"--batch-size": 512, "--ubatch-size": 512, "--n-gpu-layers": 0}
    server = llama_server.start([str(part) for part in (program, *chain(*options.items()))], 0, os.environ)
    try:
        yield server.address
    finally:
        server.close()


def over_http(url: str, api: Any, streams: int, tokens: int, total: int, seed: int = 0) -> dict[str, Any]:
    asked = Asked(f"{url}/v1", [Concurrency(streams)], api=api, prompt=PROMPT, tokens=tokens, total=total, seed=seed)
    result: dict[str, Any] = measure_url(asked, "", lambda *_: None)["results"][0]
    assert not result["errors"], result["messages"]
    return result


def tokens_of(engine: Engine, api: str, text: str) -> list[int]:
    """A prompt as the server puts it to the model."""
    messages = [{"role": "user", "content": text}]
    return prepare(engine, messages, {})[0] if api == "chat" else engine.encode(text)


def own_rate(engine: Engine, api: str, streams: int, tokens: int, total: int, seed: int = 0) -> float:
    """Tokens per second of the engine alone: the same requests, of which nobody is told the text."""

    async def count(text: str) -> int:
        return len(tokens_of(engine, api, text))

    options: dict[str, Any] = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    n = asyncio.run(words_for(PROMPT, count))
    prompts = [tokens_of(engine, api, words(n, seed * MANY + i)) for i in range(total)]
    waiting = [request_of(prompt, options, engine.runner.sampling) for prompt in prompts]
    start = time.perf_counter()
    running = [engine.submit(waiting.pop()) for _ in range(streams)]
    while running:
        engine.step()
        running = [sequence for sequence in running if sequence.finish_reason is None]
        while waiting and len(running) < streams:
            running.append(engine.submit(waiting.pop()))
    return total * tokens / (time.perf_counter() - start)


def throughput(path: Path, api: str, streams: int, tokens: int, given: argparse.Namespace) -> dict[str, Any]:
    """Medians of rates, and of ratios of the runs beside each other."""
    context, threads, total = CONTEXT, given.threads, given.waves * streams
    runs: dict[str, list[float]] = {"engine": [], "llamina serve": [], "llama-server": []}
    with ExitStack() as stack:
        engine = stack.enter_context(load(path, backend="cpu", context=context, max_sequences=streams, threads=threads))
        mine, _ = stack.enter_context(ours(path, streams, context, threads))
        peer = stack.enter_context(theirs(given.llama_server, path, streams, context, threads))
        for url in (mine, peer):
            over_http(url, api, streams, 8, streams)
        own_rate(engine, api, streams, 8, streams)
        for i in range(given.repeats):
            runs["engine"].append(own_rate(engine, api, streams, tokens, total, i + 1))
            runs["llamina serve"].append(over_http(mine, api, streams, tokens, total, i + 1)["rate"])
            runs["llama-server"].append(over_http(peer, api, streams, tokens, total, i + 1)["rate"])
            print(f"turn {i + 1}:", {name: round(found[-1]) for name, found in runs.items()}, file=sys.stderr)
    return {
        "runs": runs,
        **{name: median(found) for name, found in runs.items()},
        "of the engine": _ratio(runs["llamina serve"], runs["engine"]),
        "times llama-server": _ratio(runs["llamina serve"], runs["llama-server"]),
    }


def _ratio(these: list[float], those: list[float]) -> float:
    return median(a / b for a, b in zip(these, those, strict=True))


def first_token(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds to the first token of a short prompt, one request at a time."""
    runs: dict[str, list[float]] = {"llamina serve": [], "llama-server": []}
    threads = given.threads
    with (
        ours(path, 1, CONTEXT, threads) as (mine, _),
        theirs(given.llama_server, path, 1, CONTEXT, threads) as peer,
    ):
        for i in range(given.repeats):
            for name, url in zip(runs, (mine, peer), strict=True):
                runs[name].append(1e3 * over_http(url, "chat", 1, 2, 10, i)["first_token"]["p50"])
            print(f"turn {i + 1}:", {name: found[-1] for name, found in runs.items()}, file=sys.stderr)
    ratio = _ratio(runs["llamina serve"], runs["llama-server"])
    return {"runs": runs, **{name: median(found) for name, found in runs.items()}, "of llama-server's": ratio}


def idle_connections(path: Path, count: int) -> dict[str, Any]:
    """Bytes that the server's resident memory grows by when so many clients stay connected."""

    async def connect(url: str, pid: int) -> int:
        parts = urlsplit(url)
        before = psutil.Process(pid).memory_info().rss
        open_ones = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(f"GET /health HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            await reader.readuntil(b"}")
            open_ones.append(writer)
        held = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
        assert len(held) >= count, f"{len(held)} of {count} connections are still open"
        grown: int = psutil.Process(pid).memory_info().rss - before
        for writer in open_ones:
            writer.close()
        return grown

    with ours(path, 1, CONTEXT, 1) as (url, pid):
        return {"connections": count, "MB": asyncio.run(connect(url, pid)) / 1e6}


def verdict(results: dict[str, dict[str, Any]]) -> tuple[str, bool]:
    """A line for each thing that is promised of these checks, and whether all of it holds."""
    lines, all_hold = [], True
    for check, found in results.items():
        for name, least, most in PROMISES[check]:
            holds = least <= found[name] <= most
            wanted = f"at least {least:g}" if most == inf else f"at most {most:g}"
            lines.append(f"{check:8}{name:20}{found[name]:8.2f}  {wanted:15}{'holds' if holds else 'FAILS'}")
            all_hold &= holds
    return "\n".join(lines), all_hold


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chat", type=Path, required=True)
    parser.add_argument("--tiny", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count() or 1)
    parser.add_argument("--waves", type=int, default=4, help="requests of a run, for each stream")
    parser.add_argument("--only", choices=["chat", "tiny", "first", "idle"])
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's program, built for this CPU")
    given = parser.parse_args()
    checks: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        "chat": ("16 streams, chat model", lambda: throughput(given.chat, "chat", 16, 64, given)),
        "tiny": ("64 streams, tiny model", lambda: throughput(given.tiny, "completions", 64, 128, given)),
        "first": ("first token, short prompt", lambda: first_token(given.chat, given)),
        "idle": ("idle connections", lambda: idle_connections(given.tiny, 1000)),
    }
    print(json.dumps(describe_machine()))
    results = {}
    for name, (title, check) in checks.items():
        if given.only in (None, name):
            results[name] = check()
            print(title, json.dumps(results[name], indent=1), flush=True)
    table, holds = verdict(results)
    print(table)
    sys.exit(not holds)


if __name__ == "__main__":
    main()
