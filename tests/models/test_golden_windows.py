"""Windowed layers give back what has left their window, and everyone goes on exactly as if they had kept it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from listening import Array, Listener

import llamina
from golden_facts import SPECS
from llamina import Engine, Request, Sampling
from llamina.engine.runner import memory
from llamina.gguf import GGUF

WINDOWED = sorted(
    name
    for name, spec in SPECS.items()
    if spec["metadata"].get(f"{spec['arch']}.attention.sliding_window", ["", 0])[1] == 32
)
TEXT = [(7 * i + i // 50) % 61 for i in range(230)]
Expected = Callable[[list[int], int], Array]
SMALL: dict[str, Any] = {"threads": 2, "context": 384, "max_sequences": 2, "step_tokens": 32, "cache_tokens": 4096}


@pytest.fixture(params=WINDOWED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def listener(name: str, speaking: Callable[[str], GGUF]) -> Iterator[Listener]:
    with llamina.load(speaking(name), **SMALL) as engine:
        assert 0 < engine.core.pages.windows.total < engine.core.pages.total
        yield Listener(engine)


@pytest.fixture
def expected(name: str, speaking: Callable[[str], GGUF], monkeypatch: pytest.MonkeyPatch) -> Iterator[Expected]:
    """What a sequence hears in an engine whose windowed layers keep everything."""
    with monkeypatch.context() as patched:
        patched.setattr(memory, "WINDOW_SHARE", 1 << 20)
        engine = llamina.load(speaking(name), **SMALL)
    with engine:
        assert engine.core.pages.windows.total == 0
        yield Listener(engine).alone


def others(listener: Listener, count: int, length: int) -> None:
    for n in range(count):
        listener.run(listener.submit([n, *TEXT[:length]], 2))


def test_same_bits_and_less_memory(listener: Listener, expected: Expected) -> None:
    """Whole; then turns that go on from it, or part from it, with what windows saw there kept or forgotten."""
    engine = listener.engine
    first = listener.submit(TEXT, 40)
    while first.finish_reason is None:
        engine.step()
        seen = engine.core.pages.windows.total - engine.core.pages.windows.free
        assert seen <= 3 + 3, "a window of two pages, one that is left whole, and a step's"
    assert np.array_equal(listener.heard[first], expected(TEXT, 40))

    turn = [*TEXT, *first.generated, 1, 2, 3]
    second = listener.submit(turn, 5)
    listener.run(second)
    assert second.cached == 256
    assert np.array_equal(listener.heard[second], expected(turn, 5))

    others(listener, count=10, length=60)  # the ends of so many leave no room for anything else
    found = []
    for n in range(2):
        parted = [*TEXT[:100], *TEXT[5 + n : 40]]
        third = listener.submit(parted, 5)
        listener.run(third)
        found.append(third.cached or 0)
        assert np.array_equal(listener.heard[third], expected(parted, 5))
        others(listener, count=1, length=229)
    assert found[0] < 96 <= found[1], "forgotten; then kept, for this is where others parted"


def test_same_bits_forked_and_rewound(listener: Listener, expected: Expected) -> None:
    """A little back windows still see what they need; further back it is computed again."""
    engine = listener.engine
    parent = listener.submit(TEXT[:90], 60)
    while len(parent.generated) < 20:
        engine.step()
    child = engine.fork(parent, Sampling(temperature=0, banned_tokens=[parent.generated[-1]]))
    while len(parent.generated) < 50:
        engine.step()
    engine.cancel(child)
    for back in (3, 40):
        listener.heard[parent].clear()
        engine.rewind(parent, back, [5])
        made = list(parent.generated)
        while len(parent.generated) < 50:
            engine.step()
        assert np.array_equal(listener.heard[parent], expected([*TEXT[:90], *made], 50 - len(made)))
    said = child.generated[20:]
    begun = [*TEXT[:90], *child.generated[:20]]
    with_ban = engine.submit(Request(begun, child.request.sampling, len(said), ignore_eos=True, cache_prompt=False))
    listener.run(parent, with_ban)
    assert with_ban.generated == said


def test_same_bits_from_a_snapshot(listener: Listener, expected: Expected) -> None:
    engine = listener.engine
    sequence = listener.submit(TEXT, 20)
    while len(sequence.generated) < 5:
        engine.step()
    data = engine.snapshot(sequence)
    engine.cancel(sequence)
    others(listener, count=10, length=60)
    engine.core.pages.forget()
    again = listener.listen(engine.resume(data))
    assert again.computed == len(TEXT) + 4 and again in engine.core.running
    listener.run(again)
    assert np.array_equal(listener.heard[again], expected(TEXT, 20)[5:])


def test_preempted_and_guessing(name: str, speaking: Callable[[str], GGUF], expected: Expected) -> None:
    """With too few pages for two, and with guesses that are taken back."""
    with llamina.load(speaking(name), **{**SMALL, "cache_tokens": 400}) as engine:
        assert engine.core.pages.windows.total
        sequences = [
            engine.submit(Request(TEXT[n:180], Sampling(temperature=0), 60, ignore_eos=True, speculate=3))
            for n in (0, 9)
        ]
        _run(engine)
        for sequence, n in zip(sequences, (0, 9), strict=True):
            assert sequence.generated == [int(row.argmax()) for row in expected(TEXT[n:180], 60)]
        pages = engine.core.pages
        assert pages.free == pages.total and pages.windows.free == pages.windows.total


def _run(engine: Engine) -> None:
    while engine.core.running or engine.core.waiting:
        engine.step()
