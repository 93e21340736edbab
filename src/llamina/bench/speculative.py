"""Speculative decoding, measured for every number of draft tokens and every chance that a draft token is right."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import KvType
from llamina.bench.contestant import Progress, measured_backend
from llamina.bench.machine import header
from llamina.bench.scenarios import PROSE
from llamina.engine import Engine, load
from llamina.engine.speculation.modes import Speculate

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to try. With a draft model, the texts are prose; else copies in which some tokens are replaced."""

    drafts: Sequence[int] = (1, 2, 4, 8)
    chances: Sequence[float] = (0.5, 0.7, 0.85, 0.95)  # that a token is as it was in the text that is copied
    tokens: int = 128  # of an answer
    repeats: int = 5
    threads: int = 1
    kv_type: KvType = "f16"
    draft: Path | None = None

    @property
    def modes(self) -> list[Speculate]:
        return ["off", *self.drafts, "auto"]


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt, and the answer that the model is made to give, or its own."""

    name: str
    prompt: list[int]
    answer: list[int] | None = None

    def options(self) -> dict[str, Any]:
        if self.answer is None:
            return {"temperature": 0.8, "seed": 1}
        start, answer = len(self.prompt), self.answer

        def say(known: Sequence[int], logits: Floats) -> Floats:
            logits[answer[len(known) - start]] = logits.max() + 1
            return logits

        return {"temperature": 0, "logits_processor": say}


def measure_speculation(
    path: Path, sweep: Sweep, command: str, tick: Callable[[str], None], progress: Progress
) -> dict[str, Any]:
    """The record of a sweep: for each text a result for each number of draft tokens, in turns with plain decoding."""
    beginning = header("speculative", command)
    room = 2 * sweep.tokens + 128  # a text and its copy; the beginnings of prose have fewer tokens than letters
    with load(
        path,
        backend=measured_backend(),
        threads=sweep.threads,
        context=room,
        max_sequences=1,
        kv_type=sweep.kv_type,
        draft=sweep.draft,
        progress=progress,
    ) as engine:
        results = [result for text in _texts(engine, sweep) for result in _measure(engine, text, sweep, tick)]
    settings: dict[str, Any] = {"drafts": list(sweep.drafts), "draft": sweep.draft and sweep.draft.name}
    settings |= {name: getattr(sweep, name) for name in ("tokens", "repeats", "threads", "kv_type")}
    return {**beginning, "file": {"path": str(path), "name": path.name}, "settings": settings, "results": results}


def _texts(engine: Engine, sweep: Sweep) -> Iterator[Text]:
    if sweep.draft is not None:
        for number, beginning in enumerate(PROSE, 1):
            yield Text(f"prose {number}", engine.encode(beginning))
        return
    vocab = engine.runner.plan.vocab
    for chance in sweep.chances:
        rng = np.random.default_rng([sweep.tokens, round(1000 * chance)])
        original, others = rng.integers(0, vocab, (2, sweep.tokens))
        copy = np.where(rng.random(sweep.tokens) < chance, original, others)
        yield Text(f"{chance:.0%} copied", original.tolist(), copy.tolist())


def _measure(engine: Engine, text: Text, sweep: Sweep, tick: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    seconds: dict[Speculate, list[float]] = {mode: [] for mode in sweep.modes}
    counts: dict[Speculate, tuple[int, int]] = {}
    for i in range(sweep.repeats + 1):
        for mode in sweep.modes if i % 2 else reversed(sweep.modes):  # in turns: machines have slow moments
            tick(f"{text.name}: {mode}, run {i} of {sweep.repeats}")
            usage = engine.generate(
                text.prompt, max_tokens=sweep.tokens, ignore_eos=True, speculate=mode, **text.options()
            ).usage
            if i:  # the first time is for the prompt, and for learning what steps cost
                seconds[mode].append(usage.completion_seconds)
                counts[mode] = usage.drafted_tokens, usage.accepted_tokens
    for mode in sweep.modes:
        drafted, accepted = counts[mode]
        yield {
            "name": f"{text.name}: {mode}",
            "engine": "llamina",
            "rate": (sweep.tokens - 1) / median(seconds[mode]),  # the first token comes with the prompt
            "unit": "tokens/s",
            "text": text.name,
            "drafts": mode,
            "ratio": median(off / own for off, own in zip(seconds["off"], seconds[mode], strict=True)),
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "seconds": seconds[mode],
        }
