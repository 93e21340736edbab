"""Many requests at once, on a real model: who gets a token when, and that it is the same as alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import RequestError

LONG = [1, *range(3, 503)] * 3  # 1503 tokens
CHUNK = 64


@pytest.fixture
def small_steps(stories: Path) -> Iterator[Engine]:
    """Steps of 64 tokens, so that a long prompt takes many."""
    with llamina.load(stories, threads=1, context=2048, max_tokens=CHUNK, max_sequences=4) as found:
        yield found


def greedy(tokens: list[int], n: int, **options: object) -> Request:
    return Request(tokens, Sampling(temperature=0), max_tokens=n, ignore_eos=True, **options)


def run(engine: Engine) -> list[Request]:
    """Step until nothing is left; the requests in the order in which they were done."""
    done = []
    while engine.running or engine.waiting:
        done += [event.request for event in engine.step() if event.finish_reason]
    return done


def test_a_long_prompt_stalls_nobody(small_steps: Engine, engine: Engine) -> None:
    """A token in every step for those who generate, while 1503 tokens are read; all as if alone."""
    others = [small_steps.submit(greedy([1, 10 + i, 20 + i], 20)) for i in range(2)]
    small_steps.step()
    long = small_steps.submit(greedy(LONG, 3))
    steps = 0
    while any(r.finish_reason is None for r in others):
        made = [event.request for event in small_steps.step() if event.tokens]
        assert made == others
        steps += 1
    assert steps == 19 and long.computed == steps * (CHUNK - 2), "the rest of every step"
    run(small_steps)
    for request in (*others, long):
        alone = engine.generate(request.prompt, temperature=0, max_tokens=request.max_tokens, ignore_eos=True)
        assert alone.tokens == request.generated


def test_cancelled_between_chunks(small_steps: Engine) -> None:
    long, other = small_steps.submit(greedy(LONG, 3)), small_steps.submit(greedy([1, 2, 3], 9))
    small_steps.step()
    assert 0 < long.computed < len(LONG)
    small_steps.cancel(long)
    assert small_steps.running == [other] and long.finish_reason == "cancelled" and long.lease is None
    assert run(small_steps) == [other] and small_steps.pages.free == small_steps.pages.total


def test_requests_join_and_leave_at_any_step(small_steps: Engine, engine: Engine) -> None:
    jobs = [greedy([1, 5 + 7 * i, 9 + i] * (1 + i * 9), 3 + i % 5) for i in range(12)]
    for job in jobs:
        small_steps.submit(job)
        small_steps.step()
        assert len(small_steps.running) <= 4
    run(small_steps)
    for job in jobs:
        alone = engine.generate(job.prompt, temperature=0, max_tokens=job.max_tokens, ignore_eos=True)
        assert alone.tokens == job.generated and job.finish_reason == "length"


def test_priorities(small_steps: Engine, engine: Engine) -> None:
    """A priority is a head start: it preempts, and whoever was preempted still says what it says alone."""
    plain = [small_steps.submit(greedy([1, 5 + i], 12)) for i in range(4)]
    for _ in range(3):
        small_steps.step()
    later = small_steps.submit(greedy([1, 50], 2))
    urgent = small_steps.submit(greedy([1, 60], 2, priority=1))
    small_steps.step()
    assert urgent in small_steps.running and small_steps.waiting == [plain[-1], later]
    done = run(small_steps)
    assert done[0] is urgent and sorted(map(id, done)) == sorted(map(id, [urgent, *plain, later]))
    for request in (*plain, later, urgent):
        alone = engine.generate(request.prompt, temperature=0, max_tokens=request.max_tokens, ignore_eos=True)
        assert alone.tokens == request.generated


def test_a_priority_is_not_for_ever(small_steps: Engine) -> None:
    """However many urgent requests keep coming, a plain one has its turn."""
    plain = small_steps.submit(greedy([1, 6], 2))
    for _ in range(100):
        small_steps.submit(greedy([1, 5], 2, priority=1))
        small_steps.submit(greedy([1, 7, 8], 8, priority=1))
        small_steps.step()
        if plain.finish_reason:
            break
    assert plain.finish_reason == "length"
    assert small_steps.waiting, "there was more to do than could be done"
    small_steps.close()


@pytest.mark.parametrize("priority", [1.5, "high", True, None])
def test_an_impossible_priority(engine: Engine, priority: object) -> None:
    with pytest.raises(RequestError, match="priority") as caught:
        engine.generate("Once", priority=priority)
    assert caught.value.param == "priority"
