"""How long callers wait: times to first token, of steps and between tokens, by percentiles."""

import time
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from llamina.backends import KvType
from llamina.bench.contestant import Progress, measured_backend
from llamina.bench.machine import header
from llamina.bench.percentiles import percentiles
from llamina.engine import Engine, Request, Sequence, load
from llamina.errors import CapacityError, RequestError
from llamina.ops.batch import PAGE
from llamina.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rounds of requests that come at the same moment."""

    at_a_time: abc.Sequence[int] = (1,)
    prompt: int = 128  # tokens of each
    tokens: int = 64  # that each generates
    repeats: int = 5  # rounds
    threads: int = 1
    kv_type: KvType = "f16"

    @property
    def reach(self) -> int:
        return self.prompt + self.tokens


@dataclass(slots=True)
class Times:
    """Seconds, as they were measured."""

    first_token: list[float] = field(default_factory=list)  # since the requests came
    prefill_step: list[float] = field(default_factory=list)  # steps that compute prompts
    decode_step: list[float] = field(default_factory=list)  # all other steps
    inter_token: list[float] = field(default_factory=list)  # between two tokens of one answer
    whole: list[float] = field(default_factory=list)  # since the requests came


def measure_latency(
    path: Path, asked: Waiting, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of a measurement: a result for each number of requests at a time. Raises what loading raises."""
    beginning = header("latency", command)
    with open_engine(path, max(asked.at_a_time), asked, progress) as engine:
        _round(engine, asked, 1, 0, Times())  # warms up
        results = []
        for count in asked.at_a_time:
            times, start = Times(), time.perf_counter()
            for i in range(asked.repeats):
                tick(f"{count} at a time, round {i + 1} of {asked.repeats}")
                _round(engine, asked, count, i + 1, times)
            results.append(_result(count, asked, times, time.perf_counter() - start))
    settings = {name: getattr(asked, name) for name in ("prompt", "tokens", "repeats", "threads", "kv_type")}
    return {**beginning, "file": {"path": str(path), "name": path.name}, "settings": settings, "results": results}


def open_engine(path: Path, sequences: int, asked: Waiting, progress: Progress) -> Engine:
    """The model, with KV cache pages for so many sequences at their longest."""
    context = asked.reach + 2
    return load(
        path,
        backend=measured_backend(),
        threads=asked.threads,
        context=context,
        kv_type=asked.kv_type,
        max_sequences=sequences,
        cache_tokens=sequences * (context + PAGE),
        progress=progress,
    )


def submit(engine: Engine, asked: Waiting, count: int, seed: int, kept: bool = False) -> list[Sequence]:
    """So many requests with random prompts, which no earlier round had. With `kept`, pages stay as prefixes."""
    vocab = engine.runner.plan.vocab
    if not engine.runner.model.causal:
        raise RequestError("the model generates no text: give one that does", "model")
    prompts = np.random.default_rng([seed, count]).integers(0, vocab, (count, asked.prompt)).tolist()
    options: dict[str, Any] = {"max_tokens": asked.tokens, "ignore_eos": True, "speculate": "off"}
    greedy = Sampling(temperature=0)
    return [engine.submit(Request(prompt, greedy, cache_prompt=kept, **options)) for prompt in prompts]


def _round(engine: Engine, asked: Waiting, count: int, seed: int, times: Times) -> None:
    begun = time.perf_counter()
    sequences, last = submit(engine, asked, count, seed), dict[int, float]()  # when each got its last token
    while not all(sequence.done for sequence in sequences):
        before, start = engine.metrics.prompt_tokens, time.perf_counter()
        deltas = engine.step()
        if not deltas:
            raise CapacityError("the engine has no room for the next step: measure fewer requests or tokens")
        now = time.perf_counter()
        (times.prefill_step if engine.metrics.prompt_tokens > before else times.decode_step).append(now - start)
        for delta in deltas:
            if delta.tokens:
                if delta.id in last:
                    times.inter_token.append(now - last[delta.id])
                else:
                    times.first_token.append(now - begun)
                last[delta.id] = now
            if delta.finish_reason:
                times.whole.append(now - begun)


def _result(count: int, asked: Waiting, times: Times, seconds: float) -> dict[str, Any]:
    requests = count * asked.repeats
    return {
        "name": f"{count} at a time",
        "engine": "llamina",
        "rate": requests * asked.tokens / seconds,
        "unit": "tokens/s",
        "batch": count,
        "requests": requests,
        "steps": len(times.prefill_step) + len(times.decode_step),
        **{each.name: percentiles(getattr(times, each.name)) for each in fields(times)},
    }
