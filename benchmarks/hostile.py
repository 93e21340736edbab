"""Hostile clients against a real server: it keeps serving, and gives back what they took.

    python benchmarks/hostile.py MODEL.gguf [--rounds 20] [--connections 500]

Each round opens connections that say nothing, say it slowly, ask for streams and do not read them, send bodies that are
too large, nested, cut off or no JSON, floods of headers and what is no HTTP at all, while a good client wants answers.
In the end memory, file descriptors, sequences and pages must be back at their level.
"""

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

SERVER = """
import sys
from llamina.server.config import Config, ModelProfile
from llamina.server.run import serve
model, admin, data = sys.argv[1:]
profile = ModelProfile(model=model, threads=1, context=256, max_sequences=4)
config = Config(port=0, admin_port=int(admin), data=data, timeout=30, models={"tiny": profile})
sys.exit(serve(config, tell=lambda line: print(line, flush=True)))
"""
MEGABYTE = 1 << 20
ENDLESS = {
    "model": "tiny",
    "prompt": "Once",
    "max_tokens": 1000,
    "ignore_eos": True,
    "context_shift": True,
    "stream": True,
}


@dataclass
class Level:
    """What a server holds."""

    server_mb: float
    worker_mb: float
    descriptors: int
    sequences: int
    pages: dict[str, Any] = field(default_factory=dict)


class Target:
    """A server in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, admin: str) -> None:
        self.process, self.url, self.admin = process, url, admin
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    async def connect(self, buffer: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket()
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (self.host, self.port))
        return await asyncio.open_connection(sock=connection)

    async def level(self) -> Level:
        """What it holds now."""
        me = psutil.Process(self.process.pid)
        workers = me.children()
        async with httpx.AsyncClient(base_url=self.admin, timeout=60) as client:
            stats = (await client.get("/admin/stats")).json()["models"]["tiny"]
            running = (await client.get("/admin/requests")).json()["data"]
        gauges = {name: value for name, value in stats["gauges"].items() if "page" in name or "token" in name}
        held = sum(worker.memory_info().rss for worker in workers)
        return Level(me.memory_info().rss / MEGABYTE, held / MEGABYTE, me.num_fds(), len(running), gauges)


@asynccontextmanager
async def target(model: str) -> AsyncIterator[Target]:
    """A server with this model, ended by SIGTERM; its worker must end with it."""
    with (
        tempfile.TemporaryDirectory(prefix="llamina-hostile-") as data,
        socket.create_server(("127.0.0.1", 0)) as probe,
    ):
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, "-c", SERVER, model, str(port), data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = (await asyncio.to_thread(process.stdout.readline)).split()[-1]
            while "is ready" not in (line := await asyncio.to_thread(process.stdout.readline)):
                assert line, "the server ended"
            yield Target(process, url, f"http://127.0.0.1:{port}")
            workers = psutil.Process(process.pid).children()
            process.terminate()
            await asyncio.to_thread(process.wait, 30)
            assert not psutil.wait_procs(workers, 10)[1], "a worker outlived its server"
        finally:
            process.kill()
            process.wait()


# ---- attacks ---------------------------------------------------------------------------------------------


def request(body: bytes, *, path: str = "/v1/completions", length: int | None = None, headers: str = "") -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n{headers}\r\n"
    return head.encode() + body


async def say(target: Target, data: bytes, *, wait: float = 5.0) -> bytes:
    """Send bytes and return what is answered, until the connection ends or `wait` seconds are over."""
    reader, writer = await target.connect()
    try:
        with suppress(OSError):
            writer.write(data)
            await writer.drain()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(wait):
                return await reader.read(65536)
        return b""
    finally:
        writer.close()


def refused(answer: bytes) -> bool:
    """Whether an answer is a 4xx, or none: never a 5xx."""
    return not answer or answer.startswith(b"HTTP/1.1 4")


async def bodies(target: Target) -> None:
    """Bodies that are too large, nested, malformed or lie about their size."""
    good = json.dumps({"model": "tiny", "prompt": "Once"}).encode()
    cases = [
        request(b"x" * (11 * MEGABYTE)),
        request(b"{", length=10**12),
        request(b"[" * 100_000),
        request(b'{"a":' * 50_000),
        request(b'{"model": "tiny", "prompt": ' + b"[" * 500 + b"]" * 500 + b"}"),
        request(b'{"model": "tiny", "json_schema": ' + b'{"items":' * 500 + b"{}" + b"}" * 500 + b', "prompt": "x"}'),
        request(b"\xff\xfe\x00" * 100),
        request(b""),
        request(good, headers="Content-Type: multipart/form-data\r\n", path="/v1/chat/completions"),
        request(json.dumps({"model": "tiny", "prompt": list(range(512)) * 400}).encode()),
        request(json.dumps({"model": "tiny", "prompt": "word " * 100_000}).encode()),
        request(json.dumps({"model": "tiny", "prompt": "x", "regex": "(" * 9000}).encode()),
    ]
    for case in cases:
        answer = await say(target, case, wait=20)
        assert refused(answer), answer[:200]


async def headers(target: Target) -> None:
    """Floods of headers, and what is no HTTP."""
    noise = random.Random(1).randbytes(5000)
    cases = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a" * MEGABYTE + b"\r\n\r\n",
        b"GET /" + b"a" * MEGABYTE + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\nhello\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01" + noise,
        noise,
        b"\r\n" * 1000,
    ]
    for case in cases:
        answer = await say(target, case, wait=2)
        assert refused(answer), answer[:200]


async def idle(target: Target, n: int, begin: bytes, hold: asyncio.Event) -> None:
    """Connections that begin something and say no more."""
    writers = []
    for _ in range(n):
        with suppress(OSError):
            _, writer = await target.connect()
            writer.write(begin)
            writers.append(writer)
    await hold.wait()
    for writer in writers:
        writer.transport.abort()


async def slow_readers(target: Target, n: int, hold: asyncio.Event) -> None:
    """Streams that nobody reads."""
    writers = []
    for _ in range(n):
        _, writer = await target.connect(buffer=4096)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request(json.dumps(ENDLESS).encode()))
        writers.append(writer)
    await hold.wait()
    for writer in writers:
        writer.transport.abort()


async def leavers(target: Target, n: int) -> None:
    """Clients that leave in the middle of their stream, or before it begins."""
    for at in range(n):
        reader, writer = await target.connect()
        writer.write(request(json.dumps(ENDLESS).encode()))
        if at % 2:
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(100), 20)
        writer.transport.abort()


async def good_client(target: Target, done: asyncio.Event) -> list[float]:
    """Seconds that good requests took; raises if one is not answered."""
    times = []
    async with httpx.AsyncClient(base_url=target.url, timeout=120) as client:
        while not done.is_set() or not times:
            assert (await client.get("/health")).status_code == 200
            started = time.monotonic()
            answer = await client.post("/v1/completions", json={"model": "tiny", "prompt": "Once", "max_tokens": 2})
            assert answer.status_code == 200, answer.text
            times.append(time.monotonic() - started)
            await asyncio.sleep(0.05)
    return times


async def round_of_attacks(target: Target, connections: int, readers: int) -> list[float]:
    """One of everything, at the same time; what good requests took meanwhile."""
    hold, done = asyncio.Event(), asyncio.Event()
    part = connections // 5
    holding = [
        asyncio.ensure_future(attack)
        for attack in (
            idle(target, part, b"", hold),
            idle(target, part, b"GET / HT", hold),
            idle(target, part, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", hold),
            idle(target, part, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", hold),
            idle(target, connections - 4 * part - readers, b"\r\n", hold),
            slow_readers(target, readers, hold),
        )
    ]
    good = asyncio.ensure_future(good_client(target, done))
    attacks: list[Callable[[Target], Awaitable[None]]] = [bodies, headers, lambda target: leavers(target, 10)]
    await asyncio.gather(*(attack(target) for attack in attacks))
    hold.set()
    await asyncio.gather(*holding)
    done.set()
    return await good


async def back_to(target: Target, before: Level, seconds: float, more_mb: float) -> Level:
    """The level once it is that of before again; raises if it does not get there in time."""
    end = time.monotonic() + seconds
    while True:
        now = await target.level()
        problems = {
            "memory of the server": now.server_mb > before.server_mb + more_mb,
            "memory of the worker": now.worker_mb > before.worker_mb + more_mb,
            "file descriptors": now.descriptors > before.descriptors + 5,
            "sequences": now.sequences > 0,
            "pages": now.pages["pages_used"] > before.pages["pages_used"],
        }
        if not any(problems.values()):
            return now
        assert time.monotonic() < end, (f"not back: {[name for name, bad in problems.items() if bad]}", before, now)
        await asyncio.sleep(0.2)


async def run(model: str, rounds: int, connections: int, readers: int = 20, warm: bool = True) -> str:
    """Attack a server for some rounds; what it held, in words. Raises AssertionError if it does not get over it.

    `warm`: the first round does not count, for buffers and caches get their size in it. Memory may grow by 64 MB, or
    by 192 MB with that round.
    """
    async with target(model) as found:
        if warm:
            await round_of_attacks(found, connections, readers)
        before, times = await back_to(found, await found.level(), 60, 64), []
        for _ in range(rounds):
            times += await round_of_attacks(found, connections, readers)
        after = await back_to(found, before, 60, 64 if warm else 192)
    slowest = max(times, default=0.0)
    return f"before {before}\nafter  {after}\n{len(times)} good requests, the slowest in {slowest:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--connections", type=int, default=500)
    given = parser.parse_args()
    print(asyncio.run(run(given.model, given.rounds, given.connections)))


if __name__ == "__main__":
    main()
