"""llama.cpp by xllamacpp's server in this process. The server's own times are used, but for whole answers."""

import time
from typing import Any

import xllamacpp

from llamina.bench.contestant import STEP, Progress, Setup
from llamina.bench.task import Task, Tokens
from llamina.errors import CapacityError


class XLlamaCpp:
    """A server with a slot for every sequence."""

    def __init__(self, server: Any, vocab: int) -> None:
        self._server = server
        self._vocab = vocab

    def seconds(self, task: Task, seed: int) -> float:
        before, fresh = task.draw(seed, self._vocab)
        if task.depth:
            self._ask(before, 1, True)
        whole = [b + f for b, f in zip(before, fresh, strict=True)]
        if task.kind == "answer":
            start = time.perf_counter()
            self._ask(whole, task.tokens, bool(task.depth))
            return time.perf_counter() - start
        timings = self._ask(whole, 1 if task.kind == "prompt" else task.tokens + 1, bool(task.depth))
        if task.kind == "prompt":  # a cache that was not found means more tokens, a rounded one fewer
            return float(timings["prompt_ms"]) / 1000 * task.tokens / timings["prompt_n"]
        # Its clock starts with the first token. All sequences advance together, so one tells of all.
        return float(timings["predicted_ms"]) / 1000 * task.tokens / (timings["predicted_n"] - 1)

    def _ask(self, prompts: Tokens, n: int, cached: bool) -> dict[str, float]:
        request = {"prompt": prompts if len(prompts) > 1 else prompts[0], "n_predict": n, "temperature": 0}
        answer = self._server.handle_completions({**request, "cache_prompt": cached, "ignore_eos": True})
        if "timings" not in answer:
            raise CapacityError(f"llama.cpp's server answered {str(answer)[:200]}")
        timings: dict[str, float] = answer["timings"]
        return timings

    def close(self) -> None:
        del self._server


def enter(setup: Setup, progress: Progress) -> XLlamaCpp:
    """Start the server, with a context for each slot."""
    params = xllamacpp.CommonParams()
    params.model.path, params.verbosity, params.n_gpu_layers = setup.path, -1, 0
    params.n_parallel = setup.sequences
    params.n_ctx = setup.sequences * -(-(setup.context + 2) // 256) * 256
    params.n_batch = params.n_ubatch = STEP
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup.threads
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{setup.kv_type.upper()}")
    params.no_extra_bufts = not setup.repack
    return XLlamaCpp(xllamacpp.Server(params), setup.vocab)
