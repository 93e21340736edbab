"""Nothing stays of a token when its answer is done, and nothing of a model when it is unloaded."""

import ctypes
import gc
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
from live_server import PATIENCE, wait_for

from llamina.engine import load
from llamina.server.model.frames import Chunks, FromModel, Generate, encode
from llamina.server.model.service import Service

STREAMS, TOKENS = 8, 100


class Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`; `uordblks` are the bytes in use, of all arenas."""

    NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in NAMES)


def malloced() -> int:
    """Bytes that native code holds, where the C library tells."""
    told = getattr(ctypes.CDLL(None), "mallinfo2", None) if sys.platform == "linux" else None
    if told is None:
        return 0
    told.restype = Mallinfo
    return int(told().uordblks)


def test_nothing_stays_of_a_token(golden: Callable[[str], Path]) -> None:
    """After a warm-up, which fills the KV cache and with it the prefix tree. The sender encodes as in a worker.

    No garbage collector is needed: one that runs seldom lets a busy worker grow.
    """
    engine = load(golden("stories260K.gguf"), max_sequences=STREAMS, threads=1, cache_tokens=STREAMS * 2 * TOKENS)
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()

    def emit(frame: FromModel) -> None:
        encode(frame)
        for chunk in frame.chunks if isinstance(frame, Chunks) else ():
            if chunk.finish_reason is not None:
                ends.put(chunk.id)

    service, made = Service(engine, emit), 0
    options = {"max_tokens": TOKENS, "ignore_eos": True, "logprobs": 2}

    def generate(rounds: int) -> tuple[int, int]:
        """Python's objects and native bytes in use after so many rounds of answers."""
        nonlocal made
        for _ in range(rounds):
            for _ in range(STREAMS):
                made += 1
                service.handle(Generate(made, prompt=f"Once upon {made}", options=options | {"seed": made}))
            for _ in range(STREAMS):
                ends.get(timeout=60)
        assert wait_for(lambda: not service._scopes)
        return sys.getallocatedblocks(), malloced()

    try:
        generate(4)
        gc.collect()
        gc.disable()
        blocks, bytes_ = generate(1)
        more_blocks, more_bytes = generate(4)
        tokens = 4 * STREAMS * TOKENS
        assert more_blocks - blocks < tokens / 4, "objects stay of tokens"
        assert more_bytes - bytes_ < 50 * tokens, "native memory stays of tokens"
    finally:
        gc.enable()
        service.close()


def test_unloading_a_model_returns_its_memory(smollm2: Path, tmp_path: Path) -> None:
    """Its process is gone, and the server has what it had before. The first time does not count: modules are loaded."""
    command = [sys.executable, "-m", "llamina", "serve", f"model={smollm2}", "--port", "0", "-t", "1", "-c", "512"]
    environment = os.environ | {"LLAMINA_DATA": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            server, levels = psutil.Process(process.pid), list[int]()
            with httpx.Client(base_url=url, timeout=PATIENCE) as client:
                for _ in range(4):
                    body = {"model": "model", "prompt": "Once", "stream": False, "options": {"num_predict": 8}}
                    assert client.post("/api/generate", json=body).status_code == 200
                    [worker] = server.children()
                    held = worker.memory_info().rss
                    assert held > smollm2.stat().st_size
                    client.post("/api/generate", json={"model": "model", "keep_alive": 0})
                    assert wait_for(lambda worker=worker: not worker.is_running())  # type: ignore[misc]
                    assert server.children() == []
                    levels.append(server.memory_info().rss)
            assert max(levels[1:]) - levels[0] < 16 << 20 < held, levels
        finally:
            process.terminate()
