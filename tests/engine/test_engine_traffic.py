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
    with llamina.load(stories, threads=1, context=2048, step_tokens=CHUNK, max_sequences=4) as found:
        yield found


def greedy(tokens: list[int], n: int, **options: object) -> Request:
    return Request(tokens, Sampling(temperature=0), max_tokens=n, ignore_eos=True, **options)


def run(engine: Engine) -> list[int]:
    """Step until nothing is left; the sequences' ids in the order in which they were done."""
    done = []
    while engine.core.running or engine.core.waiting:
        done += [delta.id for delta in engine.step() if delta.finish_reason]
    return done


def alone(engine: Engine, request: Request) -> list[int]:
    """What an engine says that has nothing else to do."""
    return engine.generate(request.prompt, temperature=0, max_tokens=request.max_tokens, ignore_eos=True).tokens


def test_a_long_prompt_stalls_nobody(small_steps: Engine, engine: Engine) -> None:
    """A token in every step for those who generate, while 1503 tokens are read; all as if alone."""
    others = [small_steps.submit(greedy([1, 10 + i, 20 + i], 20)) for i in range(2)]
    small_steps.step()
    long = small_steps.submit(greedy(LONG, 3))
    steps = 0
    while any(s.finish_reason is None for s in others):
        made = [delta.id for delta in small_steps.step() if delta.tokens]
        assert made == [s.id for s in others]
        steps += 1
    assert steps == 19 and 0 <= long.computed - steps * (CHUNK - 2) <= 2, "the rest of every step"
    run(small_steps)
    for sequence in (*others, long):
        assert alone(engine, sequence.request) == sequence.generated


def test_cancelled_between_chunks(small_steps: Engine) -> None:
    long, other = small_steps.submit(greedy(LONG, 3)), small_steps.submit(greedy([1, 2, 3], 9))
    small_steps.step()
    assert 0 < long.computed < len(LONG)
    small_steps.cancel(long)
    core = small_steps.core
    assert core.running == [other] and long.finish_reason == "cancelled" and long.lease is None
    assert run(small_steps) == [other.id] and core.pages.free == core.pages.total


def test_requests_join_and_leave_at_any_step(small_steps: Engine, engine: Engine) -> None:
    jobs = [greedy([1, 5 + 7 * i, 9 + i] * (1 + i * 9), 3 + i % 5) for i in range(12)]
    sequences = []
    for job in jobs:
        sequences.append(small_steps.submit(job))
        small_steps.step()
        assert len(small_steps.core.running) <= 4
    run(small_steps)
    for sequence in sequences:
        assert alone(engine, sequence.request) == sequence.generated and sequence.finish_reason == "length"


def test_priorities(small_steps: Engine, engine: Engine) -> None:
    """A priority is a head start: it preempts, and whoever was preempted still says what it says alone."""
    plain = [small_steps.submit(greedy([1, 5 + i], 12)) for i in range(4)]
    for _ in range(3):
        small_steps.step()
    later = small_steps.submit(greedy([1, 50], 2))
    urgent = small_steps.submit(greedy([1, 60], 2, priority=1))
    small_steps.step()
    assert urgent in small_steps.core.running and small_steps.core.waiting == [plain[-1], later]
    done = run(small_steps)
    assert done[0] == urgent.id and sorted(done) == sorted(s.id for s in (urgent, *plain, later))
    for sequence in (*plain, later, urgent):
        assert alone(engine, sequence.request) == sequence.generated


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
    assert small_steps.core.waiting, "there was more to do than could be done"
    small_steps.close()


@pytest.mark.parametrize("priority", [1.5, "high", True, None])
def test_an_impossible_priority(engine: Engine, priority: object) -> None:
    with pytest.raises(RequestError, match="priority") as caught:
        engine.generate("Once", priority=priority)
    assert caught.value.param == "priority"
