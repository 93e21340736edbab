"""llama.cpp's own server, the program `llama-server`, over HTTP."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from llamina.bench.contestant import STEP, Progress, Setup
from llamina.bench.task import Task, Tokens
from llamina.errors import CapacityError, RequestError

PROGRAM = "llama-server"
PATIENCE = 120  # seconds to load a model
GRACE = 2.0  # seconds to end when it is told to; less than the process that started it is given
FAILURES = (urllib.error.URLError, ConnectionError, TimeoutError)


class LlamaServer:
    """A running server with a slot for every sequence. Times are measured here, with HTTP included."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, vocab: int) -> None:
        self._process, self._vocab = process, vocab
        self.address = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        """Returns when it has loaded the model. Raises CapacityError if it ends or takes too long."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return
            except FAILURES:
                time.sleep(0.05)
        code = self._process.poll()
        state = f"is not ready after {PATIENCE} s" if code is None else f"ended with code {code}"
        raise CapacityError(f"{PROGRAM} {state}: run it by hand to see why")

    def seconds(self, task: Task, seed: int) -> float:
        before, fresh = task.draw(seed, self._vocab)
        if task.depth:
            self._ask(before, 1, cached=True)
        whole = [b + f for b, f in zip(before, fresh, strict=True)]
        start = time.perf_counter()
        self._ask(whole, 1 if task.kind == "prompt" else task.tokens, cached=bool(task.depth))
        return time.perf_counter() - start

    def _ask(self, prompts: Tokens, n: int, cached: bool) -> None:
        """One call for all sequences, which the server batches. Raises CapacityError if it does not answer all."""
        body = {"prompt": prompts, "n_predict": n, "temperature": 0, "cache_prompt": cached, "ignore_eos": True}
        found = self._post("/completion", body, len(prompts))
        made = [one.get("timings", {}).get("predicted_n") for one in (found if isinstance(found, list) else [found])]
        if made != [n] * len(prompts):
            raise CapacityError(f"{PROGRAM} generated {made} tokens, not {n} for each of {len(prompts)} prompts")

    def embed(self, prompts: Tokens) -> list[list[float]]:
        """A vector for each prompt, of a server that was started with --embedding. Raises CapacityError if it fails."""
        found = self._post("/embedding", {"content": prompts}, len(prompts))
        vectors = {one["index"]: one["embedding"][0] for one in found}  # of a pooled model there is one
        if sorted(vectors) != list(range(len(prompts))):
            raise CapacityError(f"{PROGRAM} embedded {len(vectors)} of {len(prompts)} prompts")
        return [vectors[i] for i in range(len(prompts))]

    def _post(self, path: str, body: Mapping[str, object], count: int) -> Any:
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.address + path, data, kind)) as answer:
                return json.load(answer)
        except FAILURES as error:
            raise CapacityError(f"{PROGRAM} did not answer {count} prompts: {error}") from error

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def enter(setup: Setup, progress: Progress) -> LlamaServer:
    """Start the program that is on the PATH, with a context for each slot."""
    if (program := shutil.which(PROGRAM)) is None:
        raise RequestError(f"{PROGRAM} is not on the PATH: build llama.cpp", "against")
    options: dict[str, object] = {
        "--threads": setup.threads,
        "--parallel": setup.sequences,
        "--ctx-size": setup.sequences * -(-(setup.context + 2) // 256) * 256,
        "--batch-size": STEP,
        "--ubatch-size": STEP,
        "--cache-type-k": setup.kv_type,
        "--cache-type-v": setup.kv_type,
        "--n-gpu-layers": 0,
    }
    flags = [str(part) for option in options.items() for part in option] + ["--no-repack"] * (not setup.repack)
    return start([program, "--model", setup.path, *flags], setup.vocab, os.environ)


def start(command: Sequence[str], vocab: int, environment: Mapping[str, str]) -> LlamaServer:
    """Start a server at a free port; it has loaded the model. Raises CapacityError if it does not come so far."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--port", str(port)], env=environment, **quiet)
    server = LlamaServer(process, port, vocab)
    try:
        server.wait()
    except BaseException:
        server.close()
        raise
    return server


def version() -> str | None:
    """The version that the program on the PATH prints; None without one."""
    if (program := shutil.which(PROGRAM)) is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    lines = (said.stdout + said.stderr).splitlines()
    return next((line.removeprefix("version: ") for line in lines if line.startswith("version:")), None)
