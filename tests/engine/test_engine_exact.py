"""Bit for bit the same logits, whatever the chunking, the threads and the company: equal, not close."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina import Completion, Engine, Request, Sampling

TEXT = "Once upon a time, in a land far away, there lived a small dragon who was afraid of the dark and of"
MADE = 16  # tokens of each generation
PROMPTS = ["Once upon a time", "Lily and Tom went to the", TEXT, "The", "One day, a big dog saw a ball in"]


@pytest.fixture(scope="module")
def stories_f16(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 64 and of 172: multiplied as 16-bit integers where the CPU has VNNI, and as floats."""
    return llamina.quantize(stories, tmp_path_factory.mktemp("f16") / "stories-F16.gguf", "F16").path


@pytest.fixture(params=["stories", "stories_f16", "smollm2"], scope="module")
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[Engine]:
    """One thread, prompts at once: what everything else is compared with."""
    with llamina.load(path, threads=1, context=256) as found:
        yield found


@pytest.fixture(scope="module")
def expected(alone: Engine) -> tuple[list[int], np.ndarray]:
    tokens = alone.encode(TEXT)
    assert len(tokens) > 20, "more than a page"
    return tokens, alone.logits(tokens)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3, 16, 512])
def test_chunks_and_threads(path: Path, expected: tuple[list[int], np.ndarray], chunk: int, threads: int) -> None:
    tokens, logits = expected
    with llamina.load(path, threads=threads, context=256, step_tokens=chunk) as engine:
        np.testing.assert_array_equal(engine.logits(tokens), logits)


@pytest.mark.parametrize("chunk", [1, 5, 16, 37, 64])
def test_many_pages(path: Path, alone: Engine, chunk: int) -> None:
    """Tiles of tokens and pages, cut at other places by every chunk length."""
    tokens = (alone.encode(TEXT) * 10)[:200]
    if chunk == 1 and "smol" in path.name.lower():
        tokens = tokens[:70]  # one by one takes its time
    with llamina.load(path, threads=2, context=256, step_tokens=chunk) as engine:
        np.testing.assert_array_equal(engine.logits(tokens), alone.logits(tokens))


@pytest.mark.parametrize("threads", [3, 5])
def test_more_threads_than_cores(path: Path, expected: tuple[list[int], np.ndarray], threads: int) -> None:
    tokens, logits = expected
    with llamina.load(path, threads=threads, context=256) as engine:
        np.testing.assert_array_equal(engine.logits(tokens), logits)


def test_a_prefix_has_the_same_logits(alone: Engine, expected: tuple[list[int], np.ndarray]) -> None:
    tokens, logits = expected
    for n in (1, 2, 15, 16, 17, len(tokens) - 1):
        np.testing.assert_array_equal(alone.logits(tokens[:n]), logits[:n])


def test_twice_is_the_same(alone: Engine, expected: tuple[list[int], np.ndarray]) -> None:
    """Pages that others have used leave no trace."""
    tokens, logits = expected
    alone.logits(tokens[::-1])
    np.testing.assert_array_equal(alone.logits(tokens), logits)


@pytest.mark.parametrize("chunk", [5, 512])
def test_logits_in_company(path: Path, alone: Engine, chunk: int) -> None:
    """Requests of all kinds, begun at different steps, in one batch."""
    prompts = [alone.encode(text) for text in PROMPTS]
    solo = [alone.logits(tokens) for tokens in prompts]
    with llamina.load(path, threads=2, context=256, step_tokens=chunk) as engine:
        sequences = []
        for tokens in prompts:
            sequences.append(engine.submit(Request(tokens, reads=range(len(tokens)))))
            engine.submit(Request(tokens, Sampling(seed=1), max_tokens=4))
            engine.step()
        while engine.core.running or engine.core.waiting:
            engine.step()
    for sequence, logits in zip(sequences, solo, strict=True):
        np.testing.assert_array_equal(np.concatenate(sequence.rows), logits)


@pytest.fixture(scope="module")
def jobs(alone: Engine) -> list[tuple[list[int], Sampling, Completion]]:
    """Prompts, greedy and seeded in turns, and what comes of each alone."""
    found = []
    for i, text in enumerate(PROMPTS):
        options = {"temperature": 0.0} if i % 2 else {"temperature": 1.0, "seed": i}
        found.append((alone.encode(text), Sampling(**options), alone.generate(text, max_tokens=MADE, **options)))
    return found


@pytest.mark.parametrize(
    ("sequences", "chunk", "tiny"),
    [(16, 512, False), (2, 512, False), (16, 4, False), (16, 512, True), (16, 7, True)],
    ids=["together", "two at a time", "in chunks", "preempted", "preempted in chunks"],
)
def test_generation_in_company(
    path: Path, jobs: list[tuple[list[int], Sampling, Completion]], sequences: int, chunk: int, tiny: bool
) -> None:
    """Generations equal their solo runs; a cache that only holds the longest makes others start again."""
    cache = max(len(tokens) for tokens, _, _ in jobs) + MADE if tiny else None
    given_back = 0
    with llamina.load(
        path, threads=2, context=256, step_tokens=chunk, max_sequences=sequences, cache_tokens=cache
    ) as engine:
        todo, submitted = list(jobs), []
        while todo or engine.core.running or engine.core.waiting:
            if todo:
                tokens, sampling, _ = todo.pop(0)
                submitted.append(engine.submit(Request(tokens, sampling, max_tokens=MADE)))
            before = {s.id: s.computed for s in engine.core.running}
            engine.step()
            given_back += sum(s.computed < before.get(s.id, 0) for s in submitted if not s.finish_reason)
        assert engine.core.pages.free == engine.core.pages.total
    assert (given_back > 0) == tiny, "preemption happens when, and only when, the cache is tiny"
    for sequence, (_, _, result) in zip(submitted, jobs, strict=True):
        assert sequence.text == result.text
        assert sequence.finish_reason == result.finish_reason
        assert [t for t in sequence.generated if t not in engine.tokenizer.eog] == result.tokens


def test_two_streams_read_in_turns(alone: Engine) -> None:
    """A step advances both; neither loses what the other's steps made."""
    expected = [alone.generate(text, temperature=0, max_tokens=12) for text in PROMPTS[:2]]
    streams = [alone.stream(text, temperature=0, max_tokens=12) for text in PROMPTS[:2]]
    texts = ["", ""]
    while any(s.sequence.finish_reason is None for s in streams):
        for i, stream in enumerate(streams):
            texts[i] += str(next(stream, ""))
    for i, stream in enumerate(streams):
        texts[i] += "".join(map(str, stream))
        assert texts[i] == expected[i].text == stream.result().text
        assert stream.result().tokens == expected[i].tokens


def test_a_stream_finished_by_anothers_steps(alone: Engine) -> None:
    short = alone.stream(PROMPTS[0], temperature=0, max_tokens=3)
    long = alone.stream(PROMPTS[1], temperature=0, max_tokens=12)
    long.result()
    assert short.sequence.finish_reason == "length"
    assert "".join(map(str, short)) == alone.generate(PROMPTS[0], temperature=0, max_tokens=3).text
