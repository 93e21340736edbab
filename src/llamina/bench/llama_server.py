"""llama.cpp's own server, the program `llama-server`, in a process of its own and over HTTP."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from llamina.bench.contestant import STEP, Progress, Setup
from llamina.bench.task import Task, Tokens
from llamina.errors import CapacityError, RequestError

PROGRAM = "llama-server"
PATIENCE = 120  # seconds to load a model
FAILURES = (urllib.error.URLError, ConnectionError, TimeoutError)


class LlamaServer:
    """A server with as many slots as a task has sequences at most; the clock is ours."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, vocab: int) -> None:
        self._process, self._vocab = process, vocab
        self._address = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        """Until it has loaded the model."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._address}/health", timeout=5):
                    return
            except FAILURES:
                time.sleep(0.05)
        code = self._process.poll()
        self.close()
        raise CapacityError(f"{PROGRAM} {'is not ready' if code is None else f'ended with {code}'}: try it by hand")

    def seconds(self, task: Task, seed: int) -> float:
        before, fresh = task.draw(seed, self._vocab)
        if task.depth:
            self._ask(before, 1, cached=True)
        whole = [b + f for b, f in zip(before, fresh, strict=True)]
        start = time.perf_counter()
        self._ask(whole, 1 if task.kind == "prompt" else task.tokens, cached=bool(task.depth))
        return time.perf_counter() - start

    def _ask(self, prompts: Tokens, n: int, cached: bool) -> None:
        """One call for all sequences, which it works on side by side."""
        body = {"prompt": prompts, "n_predict": n, "temperature": 0, "cache_prompt": cached, "ignore_eos": True}
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self._address}/completion", data, kind)) as answer:
                found: Any = json.load(answer)
        except FAILURES as error:
            raise CapacityError(f"{PROGRAM} did not answer {len(prompts)} prompts: {error}; try it by hand") from error
        made = [one.get("timings", {}).get("predicted_n") for one in (found if isinstance(found, list) else [found])]
        if made != [n] * len(prompts):
            raise CapacityError(f"{PROGRAM} made {made} tokens and not {n} for each of {len(prompts)} prompts")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def enter(setup: Setup, progress: Progress) -> LlamaServer:
    """Start the program that is found on the path; slots have a context each."""
    if (program := shutil.which(PROGRAM)) is None:
        raise RequestError(f"there is no {PROGRAM} on the path: build llama.cpp", "against")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options: dict[str, object] = {
        "--model": setup.path,
        "--port": port,
        "--threads": setup.threads,
        "--parallel": setup.sequences,
        "--ctx-size": setup.sequences * -(-(setup.context + 2) // 256) * 256,
        "--batch-size": STEP,
        "--ubatch-size": STEP,
        "--cache-type-k": setup.kv_type,
        "--cache-type-v": setup.kv_type,
        "--n-gpu-layers": 0,
    }
    command = [program, *(str(part) for option in options.items() for part in option)]
    command += [] if setup.repack else ["--no-repack"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    server = LlamaServer(process, port, setup.vocab)
    server.wait()
    return server


def version() -> str | None:
    """What the program on the path says it is."""
    if (program := shutil.which(PROGRAM)) is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    lines = (said.stdout + said.stderr).splitlines()
    return next((line.removeprefix("version: ") for line in lines if line.startswith("version:")), None)
