"""Steps that are launched before the tokens of the one ahead are known: the same answers, whatever comes between.

The device is the CPU's backend with a sampler of its own, which keeps tokens to itself until it is asked for them.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from choices import choose
from llamina import Engine
from llamina.backends.base import Choice
from llamina.backends.cpu import CpuBackend
from llamina.engine.runner import devices
from llamina.ops.batch import Batch
from skips import on_a_gpu

STAGES = frozenset(("bias", "penalties", "mask", "top_k", "top_p", "min_p", "temperature"))


class Device:
    """What it was asked for, in order: "launch" and "read", each with the number of the step."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.fails: set[int] = set()  # steps whose tokens cannot be read
        self.steps = 0

    @property
    def ahead(self) -> int:
        """How many steps were launched before the one ahead of them was read."""
        return sum(
            what == "launch" and step > 1 and ("read", step - 1) not in self.log[:at]
            for at, (what, step) in enumerate(self.log)
        )


class Tokens:
    def __init__(self, device: Device, step: int, ids: list[int]) -> None:
        self._device, self._step, self._ids = device, step, ids

    def tokens(self) -> list[int]:
        self._device.log.append(("read", self._step))
        if self._step in self._device.fails:
            raise RuntimeError("the device has stopped")
        return self._ids


class Program:
    """The CPU's program, with stages of sampling."""

    stages, ahead = STAGES, True

    def __init__(self, inner: Any, device: Device) -> None:
        self._inner, self._device, self._ids = inner, device, [0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def launch(self, batch: Batch) -> "Pending":
        tokens = batch.tokens[: batch.n_tokens]
        for at in np.flatnonzero(tokens < 0):
            tokens[at] = max(0, self._ids[-1 - tokens[at]])
        self._device.steps += 1
        self._device.log.append(("launch", self._device.steps))
        return Pending(self, self._device, self._device.steps, self._inner.launch(batch).result().copy())

    def sampled(self, ids: list[int]) -> None:
        self._ids = ids


class Pending:
    def __init__(self, program: Program, device: Device, step: int, logits: Any) -> None:
        self._program, self._device, self._step, self._logits = program, device, step, logits

    def result(self) -> Any:
        self._device.log.append(("read", self._step))
        return self._logits

    def sample(self, choices: Sequence[Choice | None]) -> Tokens:
        rows = zip(self._logits, choices, strict=True)
        ids = [0 if choice is None else choose(row, choice) for row, choice in rows]
        self._program.sampled(ids)
        return Tokens(self._device, self._step, ids)


class Backend(CpuBackend):
    def __init__(self, fake: Device, **options: Any) -> None:
        super().__init__(**{name: value for name, value in options.items() if value is not None})
        self.device = fake

    def compile(self, plan: Any, batch: Any, capacity: Any, progress: Any = None, before: Any = None) -> Any:
        inner = getattr(before, "_inner", None)
        return Program(super().compile(plan, batch, capacity, progress, inner), self.device)


Open = Callable[..., tuple[Engine, Device]]


@pytest.fixture
def open_ahead(stories: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Engines on such a device."""
    engines: list[Engine] = []

    def open_engine(**options: Any) -> tuple[Engine, Device]:
        device = Device()
        monkeypatch.setattr(devices, "make_backend", lambda name, exact, **given: Backend(device, **given))
        engines.append(llamina.load(stories, threads=1, **options))
        return engines[-1], device

    yield open_engine
    for found in engines:
        found.close()


PLAIN: dict[str, Any] = {"temperature": 0.0, "speculate": "off"}
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": PLAIN,
    "sampled": {"seed": 3, "speculate": "off"},
    "hot": {"seed": 4, "temperature": 1.7, "top_k": 100, "speculate": "off"},
    "stop": {**PLAIN, "stop": ["was"]},
    "one token": {**PLAIN, "max_tokens": 1},
    "bias": {"seed": 5, "logit_bias": {70: 3.0}, "speculate": "off"},
    "penalties": {"seed": 6, "repeat_penalty": 1.4, "presence_penalty": 0.5, "speculate": "off"},
    "grammar": {"seed": 8, "regex": r" [a-z]+( [a-z]+){3}\.", "speculate": "off"},
    "all candidates": {"seed": 7, "top_k": 0, "speculate": "off"},
    "logprobs": {**PLAIN, "logprobs": 2},
    "speculation": {"temperature": 0.0},
}
PROMPT = "Once upon a time, there was a"


def told(result: Any) -> tuple[Any, ...]:
    return result.tokens, result.text, result.finish_reason


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_answers(engine: Engine, open_ahead: Open, name: str) -> None:
    other, device = open_ahead()
    options = {"max_tokens": 30, **REQUESTS[name]}
    assert told(other.generate(PROMPT, **options)) == told(engine.generate(PROMPT, **options))
    if name in ("greedy", "sampled", "hot", "stop", "bias"):
        assert device.ahead > 3
    if name in ("penalties", "grammar", "all candidates", "logprobs", "one token"):
        assert device.ahead == 0


def test_many_at_once(engine: Engine, open_ahead: Open) -> None:
    """Sequences that begin, end, are preempted and go on in the same steps as others."""
    other, device = open_ahead(max_sequences=4, cache_tokens=112, step_tokens=16)
    prompts = [f"{PROMPT} {'very ' * i}" for i in range(9)]
    streams = [
        [
            e.stream(p, max_tokens=12 + 5 * i, seed=i, temperature=0.9 * (i % 2), speculate="off")
            for i, p in enumerate(prompts)
        ]
        for e in (engine, other)
    ]
    want, got = ([told(stream.result()) for stream in found] for found in streams)
    assert got == want
    assert device.ahead > 10
    assert other.metrics.preemptions > 0
    assert other.core.pages.free == other.core.pages.total


def test_a_sequence_beside_those_that_the_host_samples_for(engine: Engine, open_ahead: Open) -> None:
    """Nobody misses a step: while one needs the host, no step is launched ahead."""
    other, device = open_ahead()
    options = [PLAIN, {**PLAIN, "logprobs": 1}, {"seed": 1, "speculate": "off"}]
    streams = [[e.stream(PROMPT, max_tokens=10, **o) for o in options] for e in (engine, other)]
    want, got = ([told(stream.result()) for stream in found] for found in streams)
    assert got == want and device.ahead == 0
    assert other.metrics.steps < 13


def test_an_embedding_in_the_same_step(engine: Engine, open_ahead: Open) -> None:
    """Another program computes it, from the same batch."""
    other, _ = open_ahead()
    found = []
    for e in (engine, other):
        streams = [e.stream(PROMPT, max_tokens=8, **PLAIN) for _ in range(2)]
        vector = e.embed("A cat sat.", pooling="mean")
        found.append(([told(stream.result()) for stream in streams], np.asarray(vector)))
    assert found[0][0] == found[1][0] and np.abs(found[0][1] - found[1][1]).max() <= (1e-3 if on_a_gpu() else 0)


def test_a_prompt_in_chunks_is_launched_ahead(engine: Engine, open_ahead: Open) -> None:
    other, device = open_ahead(step_tokens=8)
    prompt = PROMPT + " little girl named Lily who liked to play outside in the park with her red ball."
    assert told(other.generate(prompt, max_tokens=4, **PLAIN)) == told(engine.generate(prompt, max_tokens=4, **PLAIN))
    assert device.log[:2] == [("launch", 1), ("launch", 2)]


def test_what_is_done_between_two_steps(engine: Engine, open_ahead: Open) -> None:
    """A fork, a snapshot and a rewind forget the step under way; a cancelled sequence is told nothing more."""
    other, _ = open_ahead()
    want = engine.generate(PROMPT, max_tokens=24, **PLAIN).tokens
    streams = [other.stream(PROMPT, max_tokens=24, **PLAIN) for _ in range(2)]
    first, second = (stream.sequence for stream in streams)
    for _ in range(6):
        other.step()
    assert first.ahead and not first.finish_reason
    twin = other.fork(first)
    assert not first.ahead
    data = other.snapshot(first)
    other.cancel(second)
    made = len(second.generated)
    back = other.resume(data)
    other.rewind(back, 2)
    other.stepper.wait(lambda: all(s.finish_reason for s in (first, twin, back)))
    assert [s.generated for s in (first, twin, back)] == [list(want)] * 3
    assert len(second.generated) == made < 24


def test_what_is_taken_back_is_what_was_told(engine: Engine, open_ahead: Open) -> None:
    """Also what a snapshot has: nobody knows of the token that is being sampled."""
    other, device = open_ahead()
    found = []
    for e in (engine, other):
        stream = e.stream(PROMPT, max_tokens=20, **PLAIN)
        heard = [token for _ in range(5) for token in next(stream).tokens]
        if e is other:
            assert stream.sequence.ahead == 1 and device.ahead > 0
        info = llamina.snapshot_info(e.snapshot(stream.sequence))
        e.rewind(stream.sequence, 2, [70])
        assert stream.sequence.generated == [*heard[:3], 70] and info.generated_tokens == 5
        found.append((info.computed_tokens, told(stream.result())))
    assert found[0] == found[1]


def test_a_device_that_fails_once(engine: Engine, open_ahead: Open) -> None:
    """Both steps that were under way are computed again."""
    other, device = open_ahead()
    options = [{"max_tokens": 20, **PLAIN}, {"max_tokens": 20, "seed": 2, "speculate": "off"}]
    device.fails = {7}
    streams = [[e.stream(PROMPT, **o) for o in options] for e in (engine, other)]
    want, got = ([told(stream.result()) for stream in found] for found in streams)
    assert got == want
    assert ("launch", 8) in device.log and ("read", 8) not in device.log


def test_nothing_to_choose_from(open_ahead: Open) -> None:
    other, _ = open_ahead()
    with pytest.raises(llamina.errors.InvalidSampling, match="no token is left"):
        other.generate(PROMPT, banned_tokens=range(512), **PLAIN)
    assert other.generate(PROMPT, max_tokens=3, **PLAIN).tokens


def test_the_window_of_a_context_moves_on(engine: Engine, open_ahead: Open, stories: Path) -> None:
    with llamina.load(stories, threads=1, context=48) as plain:
        other, device = open_ahead(context=48)
        options = {"max_tokens": 60, "context_shift": True, "ignore_eos": True, **PLAIN}
        assert told(other.generate(PROMPT, **options)) == told(plain.generate(PROMPT, **options))
        assert told(other.generate(PROMPT, max_tokens=60, ignore_eos=True, **PLAIN))[2] == "length"
        assert device.ahead > 10


def test_whoever_is_interrupted_goes_on(engine: Engine, open_ahead: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """While tokens are taken in, or while a step is launched: nobody is left behind."""
    want = told(engine.generate(PROMPT, max_tokens=20, **PLAIN))
    for place, count in (("_advance", 5), ("_begin", 6)):
        other, _ = open_ahead()
        real, left = getattr(other.core, place), [count]

        def interrupted(*args: Any, real: Any = real, left: list[int] = left) -> Any:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return real(*args)

        monkeypatch.setattr(other.core, place, interrupted)
        streams = [other.stream(PROMPT, max_tokens=20, **PLAIN) for _ in range(2)]
        with pytest.raises(KeyboardInterrupt):
            for _ in range(20):
                other.step()
        assert [told(stream.result()) for stream in streams] == [want, want]
