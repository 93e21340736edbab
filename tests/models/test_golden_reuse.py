"""Every architecture goes on from what was kept exactly as if it had computed it anew: prefixes, forks, rewinds."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from listening import Listener

import llamina
from golden_facts import SPECS
from llamina.gguf import GGUF

BOTH_WAYS = {"dream", "llada", "llada-moe", "rnd1"}  # not causal: nothing can be kept
NAMES = sorted(name for name, spec in SPECS.items() if spec["arch"] not in BOTH_WAYS)


@pytest.fixture(params=NAMES)
def listener(request: pytest.FixtureRequest, speaking: Callable[[str], GGUF]) -> Iterator[Listener]:
    with llamina.load(speaking(request.param), threads=2, context=128) as engine:
        assert engine.runner.model.causal
        yield Listener(engine)


def test_same_bits_from_what_was_kept(listener: Listener) -> None:
    """Whole, then with the same prompt, and with prompts that part from it within a page."""
    engine, tokens = listener.engine, [7 * i % 61 for i in range(70)]
    other = [*tokens[:37], *tokens[10:30]]
    expected, elsewhere = listener.alone(tokens), listener.alone(other)

    first = listener.submit(tokens)
    listener.run(first)
    assert first.cached == 0
    again, parted = listener.submit(tokens), listener.submit(other)
    listener.run(again, parted)
    assert again.cached == 64
    assert parted.cached == (0 if engine.core.pages.recurrent else 37)
    for sequence, logits in ((first, expected), (again, expected), (parted, elsewhere)):
        assert np.array_equal(listener.heard[sequence], logits)
    once_more = listener.submit([*other[:36], *tokens[50:60]])
    listener.run(once_more)
    assert once_more.cached == (32 if engine.core.pages.recurrent else 36), "where the others parted"
    assert np.array_equal(listener.heard[once_more], listener.alone([*other[:36], *tokens[50:60]]))


def test_same_bits_forked_and_rewound(listener: Listener) -> None:
    engine, tokens, forced = listener.engine, [7 * i % 61 for i in range(40)], [3, 4, 5]
    expected = listener.alone(tokens, 12)
    parent = listener.submit(tokens, 12)
    while len(parent.generated) < 5:
        engine.step()
    child = listener.listen(engine.fork(parent))
    listener.run(parent, child)
    assert child.generated == parent.generated
    assert np.array_equal(listener.heard[parent], expected)
    assert np.array_equal(listener.heard[child], expected[5:])

    running = listener.submit(tokens, 12)
    while len(running.generated) < 9:
        engine.step()
    for sequence, back in ((parent, 8), (running, 5)):  # one that was done, and one that is not
        listener.heard[sequence].clear()
        engine.rewind(sequence, back, forced)
    listener.run(parent, running)
    expected = listener.alone([*tokens, *parent.generated[:4], *forced], 5)
    for sequence in (parent, running):
        assert sequence.generated[4:7] == forced and len(sequence.generated) == 12
        assert np.array_equal(listener.heard[sequence], expected)


def test_same_bits_from_a_snapshot(listener: Listener) -> None:
    """Of one that runs, and of one that was done; beside others, and in pages that others have used."""
    engine, tokens = listener.engine, [7 * i % 61 for i in range(40)]
    expected = listener.alone(tokens, 12)
    sequence = listener.submit(tokens, 12)
    while len(sequence.generated) < 5:
        engine.step()
    data = engine.snapshot(sequence)
    listener.run(sequence)
    engine.core.pages.forget()
    company = listener.submit(tokens[::-1], 12)
    engine.step()
    again = listener.listen(engine.resume(data))
    assert again.computed == 44 and again in engine.core.running
    listener.run(again, company)
    assert np.array_equal(listener.heard[again], expected[5:])
    assert np.array_equal(listener.heard[company], listener.alone(tokens[::-1], 12))
    data = engine.snapshot(sequence)
    engine.core.pages.forget()
    assert engine.resume(data).generated == sequence.generated
    after = listener.submit([*tokens, *sequence.generated, 1, 2], 3)
    listener.run(after)
    assert after.cached == 48
    assert np.array_equal(listener.heard[after], listener.alone([*tokens, *sequence.generated, 1, 2], 3))
