"""What happens before a request is computed, and what happens to others when one of them fails."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import CapacityError, LlaminaError, QueueFull, RequestError

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
BAD = 77  # the token that the failing program stumbles over


def test_a_request_submitted_twice_is_two_sequences(engine: Engine) -> None:
    request = Request(engine.encode(PROMPT), Sampling(temperature=0), max_tokens=5)
    first = engine.submit(request)
    second = engine.submit(request)
    while not (first.done and second.done):
        engine.step()
    third = engine.start(request).result()
    assert first.generated == second.generated == third.tokens and len(third.tokens) == 5
    with pytest.raises(AttributeError):
        request.max_tokens = 9  # type: ignore[misc]


@pytest.mark.parametrize("slow", ["grammar", "plan"])
def test_nobody_waits_while_another_compiles(stories: Path, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a request needs is compiled by its own thread: others get tokens meanwhile."""
    with llamina.load(stories, threads=1) as engine:
        seconds = 0.6
        begun = threading.Event()

        def wait(*args: Any) -> None:
            begun.set()
            time.sleep(seconds)

        samplers, programs = engine.runner.samplers, engine.runner.programs
        make, compile_plan = samplers.make, programs._compile
        constrained: Callable[..., Any] = lambda s: (wait() if s.request.source else None, make(s))[1]  # noqa: E731
        monkeypatch.setattr(samplers, "make", constrained)
        monkeypatch.setattr(programs, "_compile", lambda plan: (wait(), compile_plan(plan))[1])
        stream = engine.stream(PROMPT, max_tokens=None, ignore_eos=True, temperature=0)
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            ask = {"grammar": lambda: engine.generate("A", grammar='root ::= "b"'), "plan": lambda: engine.embed("A")}
            other = pool.submit(ask[slow])
            assert begun.wait(10)
            made = sum(len(next(stream).tokens) for _ in range(20))
            assert made >= 20 and not other.done(), "tokens came while the other compiled"
            other.result(60)
        stream.close()


def test_the_queue_has_an_end(stories: Path) -> None:
    with llamina.load(stories, threads=1, max_sequences=1, max_waiting=2) as engine:
        streams = [engine.stream(PROMPT, **GREEDY) for _ in range(2)]
        engine.step()  # the first runs, so that two may wait
        streams.append(engine.stream(PROMPT, **GREEDY))
        with pytest.raises(QueueFull, match=r"2 requests wait already, and 2 may"):
            engine.stream(PROMPT, **GREEDY)
        assert len({stream.result().text for stream in streams}) == 1
        assert isinstance(QueueFull("x"), CapacityError)
        for wrong in (0, -1, 1.5, "4"):
            with pytest.raises(RequestError, match="max_waiting"):
                llamina.load(stories, max_waiting=wrong)  # type: ignore[arg-type]


@pytest.fixture
def fragile(stories: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine whose program fails whenever a certain token is in the batch."""
    with llamina.load(stories, threads=1, cache_tokens=4096) as engine:
        program = engine.runner.program
        run = program.launch

        def stumble(batch: Any) -> Any:
            if BAD in batch.tokens[: batch.n_tokens]:
                raise OSError("the kernel stumbled")
            return run(batch)

        monkeypatch.setattr(program, "launch", stumble)
        yield engine


def test_a_failing_request_fails_alone(fragile: Engine) -> None:
    expected = [fragile.generate(p, **GREEDY).tokens for p in (PROMPT, "The dog")]
    streams = [fragile.stream(p, **GREEDY) for p in (PROMPT, [1, BAD, 5], "The dog")]
    assert streams[0].result().tokens == expected[0] and streams[2].result().tokens == expected[1]
    with pytest.raises(OSError, match="stumbled"):
        streams[1].result()
    assert fragile.metrics.requests["error"] == 1
    assert not fragile.core.busy and fragile.core.pages.free == fragile.core.pages.total


def test_one_that_fails_later_fails_alone(fragile: Engine) -> None:
    """In the middle of a batch that went well so far."""
    good = fragile.stream(PROMPT, **GREEDY)
    bad = fragile.stream("The dog", logit_bias={BAD: 1e9}, temperature=0, max_tokens=9, logprobs=0)  # the host knows
    with pytest.raises(OSError, match="stumbled"):
        bad.result()
    assert good.result().tokens == fragile.generate(PROMPT, **GREEDY).tokens


def test_a_step_that_fails_for_nobody_in_particular(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes well alone, together they do not: all of them fail, and the engine goes on."""
    with llamina.load(stories, threads=1) as engine:
        run = engine.runner.program.launch

        def refuse(batch: Any) -> Any:
            if batch.n_sequences > 1:
                raise OSError("two are too many")
            return run(batch)

        with monkeypatch.context() as patch:
            patch.setattr(engine.runner.program, "launch", refuse)
            streams = [engine.stream(p, **GREEDY) for p in (PROMPT, "The dog")]
            for stream in streams:
                with pytest.raises(OSError, match="two are too many"):
                    stream.result()
        assert engine.generate(PROMPT, **GREEDY).tokens


def test_threads_share_an_engine(engine: Engine) -> None:
    """Eight threads, each as if alone; generations, readings and conversations of steps at a time."""
    prompts = [PROMPT, "The dog", "Lily", "One day", "A big", "Tom saw", "In the", "She"]
    expected = {p: engine.generate(p, **GREEDY).tokens for p in prompts}
    vectors = {p: engine.embed(p) for p in prompts}
    wrong: list[str] = []

    def work(prompt: str) -> None:
        for turn in range(12):
            if turn % 3 == 2:
                same = np.array_equal(engine.embed(prompt), vectors[prompt])
            elif turn % 3:
                same = [t for d in engine.stream(prompt, **GREEDY) for t in d.tokens] == expected[prompt]
            else:
                same = engine.generate(prompt, **GREEDY).tokens == expected[prompt]
            if not same:
                wrong.append(prompt)

    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(work, prompt) for prompt in prompts]:
            job.result(120)
    assert not wrong


def test_closing_ends_a_stream_with_an_error(stories: Path) -> None:
    engine = llamina.load(stories, threads=1)
    stream = engine.stream(PROMPT, **GREEDY)
    next(stream)
    engine.close()
    with pytest.raises(RequestError, match="closed before the answer was complete"):
        list(stream)
    with pytest.raises(RequestError, match="engine is closed"):
        engine.generate(PROMPT)
    engine.close()


def test_closing_wakes_those_who_wait(stories: Path) -> None:
    """In another thread, in the middle of an answer."""
    engine = llamina.load(stories, threads=1)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(
            lambda: engine.generate(
                PROMPT, max_tokens=None, ignore_eos=True, context_shift=True, on_delta=lambda d: begun.set()
            )
        )
        assert begun.wait(30)
        engine.close()
        with pytest.raises(LlaminaError, match="closed"):
            told.result(30)


def test_deltas_come_in_order_and_before_the_result(stories: Path) -> None:
    """Also with a thread that makes the steps."""
    with llamina.load(stories, threads=1) as engine:
        engine.stepper.serve()
        for _ in range(50):
            heard: list[llamina.Delta] = []
            result = engine.generate(PROMPT, on_delta=heard.append, logprobs=1, **GREEDY)
            assert heard[-1].finish_reason == "length"
            assert [t for delta in heard for t in delta.tokens] == result.tokens
            logprobs = [x for delta in heard for x in delta.logprobs or ()]
            assert logprobs == result.logprobs, "each its own, read after the stream"


def test_an_interrupt_in_a_step_leaves_others_alone(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with llamina.load(stories, threads=1) as engine:
        other = engine.stream("The dog", **GREEDY)
        expected = engine.generate("The dog", **GREEDY).tokens
        with monkeypatch.context() as patch:
            patch.setattr(engine.runner.program, "launch", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.generate(PROMPT, **GREEDY)
        assert other.result().tokens == expected


def _interrupt(batch: Any) -> None:
    raise KeyboardInterrupt


def test_copies_are_refused(engine: Engine) -> None:
    import copy
    import pickle

    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="load the model in each process"):
            attempt(engine)


def test_many_are_queued_before_the_next_step(stories: Path) -> None:
    """Also while another thread makes the steps: a list of texts is not one text per step."""
    texts = [f"text number {i}" for i in range(96)]
    with llamina.load(stories, threads=1, max_sequences=32) as engine:
        engine.embed(texts[:2])  # the plan is compiled
        engine.stepper.serve()
        before = engine.metrics.steps
        engine.embed(texts)
        assert engine.metrics.steps - before < 20
        before = engine.metrics.steps
        engine.generate(texts, max_tokens=4, temperature=0)
        assert engine.metrics.steps - before < 40


def test_cancelled_before_it_was_queued(engine: Engine) -> None:
    """Nothing is computed for it, and it is in no count."""
    before = dict(engine.metrics.requests)
    sequence = engine.core.prepare(Request([1, 2, 3], max_tokens=5))
    engine.cancel(sequence)
    with pytest.raises(RequestError, match="cancelled"):
        engine.enqueue([sequence])
    assert sequence.done and not engine.core.busy and dict(engine.metrics.requests) == before
    running = engine.submit(Request([1, 2, 3], max_tokens=5))
    with pytest.raises(RequestError, match="under way"):
        engine.enqueue([running])
    engine.cancel(running)
