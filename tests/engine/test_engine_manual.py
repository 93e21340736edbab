"""Hand-stepping: the logits of whole sequences, token by token, forked and taken back, beside running requests."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, ManualSequence
from llamina.errors import ContextTooLong, RequestError
from llamina.gguf import GGUF

TOKENS = [1, *[3 + 7 * i % 500 for i in range(50)]]


@pytest.fixture
def sequence(engine: Engine) -> Iterator[ManualSequence]:
    with engine.sequence() as found:
        yield found


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_logits_are_those_of_the_whole(engine: Engine, sequence: ManualSequence) -> None:
    expected, at = engine.logits(TOKENS), 0
    for n in (1, 20, 1, 1, 16, 12):
        assert np.array_equal(sequence.forward(TOKENS[at : at + n]), expected[at : at + n])
        at += n
    assert sequence.tokens == TOKENS and len(sequence) == len(TOKENS)


def test_nothing_is_computed_twice(engine: Engine, sequence: ManualSequence) -> None:
    before = engine.metrics.prompt_tokens
    for token in TOKENS:
        sequence.forward([token])
    assert engine.metrics.prompt_tokens - before == len(TOKENS)


def test_greedy_by_hand(engine: Engine, sequence: ManualSequence) -> None:
    expected = engine.generate("Once upon a time", temperature=0, max_tokens=40, ignore_eos=True)
    logits, made = sequence.forward("Once upon a time"), []
    for _ in range(40):
        made.append(int(logits[-1].argmax()))
        logits = sequence.forward(made[-1:])
    assert made == expected.tokens
    assert sequence.tokens == [*engine.encode("Once upon a time"), *made]


def test_a_text_after_another(engine: Engine, sequence: ManualSequence) -> None:
    sequence.forward("Once upon")
    sequence.forward(" a time")
    more = engine.tokenizer.encode(" a time", continued=True)
    assert sequence.tokens == [*engine.encode("Once upon"), *more]


def test_forks(engine: Engine, sequence: ManualSequence) -> None:
    sequence.forward(TOKENS[:37])
    used = engine.core.pages.total - engine.core.pages.free
    with sequence.fork() as other, other.fork() as third:
        assert engine.core.pages.total - engine.core.pages.free == used  # they share
        before = engine.metrics.prompt_tokens
        assert np.array_equal(other.forward([7, 8]), engine.logits([*TOKENS[:37], 7, 8])[-2:])
        ours = engine.metrics.prompt_tokens - before
        assert ours == 2 + 39  # two by hand, and all of the comparison
        assert np.array_equal(sequence.forward([9]), engine.logits([*TOKENS[:37], 9])[-1:])
        assert np.array_equal(third.forward(TOKENS[37:]), engine.logits(TOKENS)[37:])
        assert (len(sequence), len(other), len(third)) == (38, 39, 51)


def test_a_fork_of_nothing(engine: Engine, sequence: ManualSequence) -> None:
    with sequence.fork() as other:
        assert np.array_equal(other.forward(TOKENS), engine.logits(TOKENS)) and len(sequence) == 0


@pytest.mark.parametrize("n", [1, 3, 16, 17, 36, 37])
def test_rewinds(engine: Engine, sequence: ManualSequence, n: int) -> None:
    sequence.forward(TOKENS[:37])
    sequence.rewind(n)
    assert sequence.tokens == TOKENS[: 37 - n]
    before = engine.metrics.prompt_tokens
    found = sequence.forward([11, 12])
    assert engine.metrics.prompt_tokens - before == 2
    assert np.array_equal(found, engine.logits([*TOKENS[: 37 - n], 11, 12])[-2:])


def test_a_rewound_fork_leaves_the_other_alone(engine: Engine, sequence: ManualSequence) -> None:
    sequence.forward(TOKENS[:40])
    with sequence.fork() as other:
        other.rewind(8)
        other.forward([5] * 8)
        assert np.array_equal(sequence.forward(TOKENS[40:]), engine.logits(TOKENS)[40:])


def test_beside_requests(engine: Engine, sequence: ManualSequence) -> None:
    """A step computes both; answers and logits are the same as alone."""
    alone = engine.generate("The cat", seed=1, max_tokens=40).tokens
    expected = engine.logits(TOKENS)
    generation = engine.stream("The cat", seed=1, max_tokens=40)
    found = [sequence.forward([token])[0] for token in TOKENS[:30]]
    assert len(generation.sequence.generated) > 0
    assert generation.result().tokens == alone
    close(found, expected[:30])


def test_several_threads(engine: Engine) -> None:
    expected, found = engine.logits(TOKENS), {}

    def walk(name: int) -> None:
        with engine.sequence() as own:
            found[name] = np.concatenate([own.forward([token]) for token in TOKENS])

    threads = [threading.Thread(target=walk, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for logits in found.values():
        close(logits, expected)


def test_pages_are_taken_by_whoever_needs_them(stories: Path) -> None:
    """Sequences at rest do not stand in anybody's way, and go on afterwards."""
    with llamina.load(stories, threads=1, context=128, cache_tokens=128, max_sequences=2) as engine:
        expected = engine.logits(TOKENS)
        resting = [engine.sequence() for _ in range(3)]  # more than there are places
        for one in resting:
            one.forward(TOKENS[:40])
        answer = engine.generate("Once upon a time", temperature=0, max_tokens=100, ignore_eos=True)
        assert len(answer.tokens) == 100
        for one in resting:
            assert np.array_equal(one.forward(TOKENS[40:]), expected[40:])
            one.close()
        assert engine.core.pages.free == engine.core.pages.total


@pytest.mark.parametrize("name", ["mamba2-dense", "jamba-dense", "gemma3-dense"])
def test_other_states(speaking: Callable[[str], GGUF], name: str) -> None:
    """Recurrent states, and windows: they are kept, copied, and computed again where they cannot go back."""
    tokens = [7 * i % 61 for i in range(40)]
    with llamina.load(speaking(name), threads=1, context=64) as engine, engine.sequence() as own:
        expected = engine.logits(tokens)
        close(own.forward(tokens[:20]), expected[:20])
        with own.fork() as other:
            close(own.forward(tokens[20:]), expected[20:])
            close(other.forward(tokens[20:30]), expected[20:30])
            other.rewind(15)
            close(other.forward(tokens[15:]), expected[15:])


def test_a_prompt_longer_than_a_step(stories: Path) -> None:
    with llamina.load(stories, threads=1, step_tokens=8) as engine, engine.sequence() as own:
        assert np.array_equal(own.forward(TOKENS), engine.logits(TOKENS))


def test_refusals(engine: Engine, sequence: ManualSequence) -> None:
    sequence.forward(TOKENS[:5])
    for wrong in ([], "", [10**6], [1.5], ["a"]):
        with pytest.raises(RequestError):
            sequence.forward(wrong)  # type: ignore[arg-type]
    with pytest.raises(ContextTooLong):
        sequence.forward([1] * engine.context)
    for n in (-1, 6, True, 1.0):
        with pytest.raises(RequestError, match="from 0 to 5"):
            sequence.rewind(n)  # type: ignore[arg-type]
    assert np.array_equal(sequence.forward(TOKENS[5:]), engine.logits(TOKENS)[5:])  # as if nothing had happened
    sequence.close()
    sequence.close()
    for call in (lambda: sequence.forward([1]), sequence.fork, lambda: sequence.rewind(0)):
        with pytest.raises(RequestError, match="is closed"):
            call()


def test_a_closed_engine(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=64) as engine:
        own = engine.sequence()
        own.forward([1, 2])
    with pytest.raises(RequestError, match="the engine is closed"):
        own.forward([3])
    own.close()


def test_dropping_it_gives_its_pages_back(engine: Engine) -> None:
    own = engine.sequence()
    own.forward(TOKENS)
    del own
    assert engine.core.pages.free == engine.core.pages.total


def test_bidirectional_models_have_none(files: Callable[[str], Path]) -> None:
    with (
        llamina.load(files("llada-dense"), threads=1) as engine,
        pytest.raises(RequestError, match="both ways"),
    ):
        engine.sequence()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_cannot_be_copied(engine: Engine, sequence: ManualSequence, copied: Any) -> None:
    generation = engine.stream("Once", max_tokens=2)
    for thing, way in ((engine, "load the model in each"), (sequence, "use fork"), (generation, "take its result")):
        with pytest.raises(TypeError, match=way):
            copied(thing)
    if copied is not copy.copy:  # a second session of the same engine does no harm
        with pytest.raises(TypeError, match="load the model in each process"):
            copied(llamina.Session(engine))
    generation.close()
