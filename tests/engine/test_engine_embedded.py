"""Embedding rows in the place of tokens: what a prompt of rows computes is what the tokens would have."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import llamina
from llamina import Embedded
from llamina.engine import Engine
from llamina.errors import CapacityError, RequestError
from llamina.gguf import GGUF
from llamina.quant import decode

TOKENS = [1, 17, 99, 5, 3, 42, 7, 7, 61, 30, 8, 12, 77, 101, 56, 9, 23, 4, 88, 64]
MODELS = ["llama-dense", "gemma3-dense", "qwen2vl-dense", "qwen3vl-dense", "mamba2-dense"]


def table(engine: Engine) -> np.ndarray:
    """The model's embeddings as its first layer sees them."""
    weight = engine.runner.model.embeddings
    rows = decode(weight.data, weight.format, weight.shape)
    scaled = engine.runner.model.config.architecture.startswith("gemma")
    return rows * np.float32(np.sqrt(rows.shape[1])) if scaled else rows


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, speaking: Callable[[str], GGUF]) -> Iterator[Engine]:
    with llamina.load(speaking(request.param), threads=2, step_tokens=32, max_sequences=4) as engine:
        yield engine


@pytest.fixture
def llama(speaking: Callable[[str], GGUF]) -> Iterator[Engine]:
    with llamina.load(speaking("llama-dense"), threads=2, step_tokens=32, max_sequences=4) as engine:
        yield engine


def test_rows_compute_what_their_tokens_do(model: Engine) -> None:
    rows = table(model)
    for cut in ((0, 20), (0, 7), (5, 12), (13, 20)):
        prompt = [*TOKENS[: cut[0]], Embedded(rows[TOKENS[slice(*cut)]]), *TOKENS[cut[1] :]]
        assert np.array_equal(model.logits(prompt), model.logits(TOKENS)), cut


def test_answers_are_the_same_among_others(model: Engine) -> None:
    rows = table(model)
    long = TOKENS * 4  # more than a step holds
    prompt = [*long[:30], Embedded(rows[long[30:70]]), *long[70:]]
    streams = [model.stream(p, max_tokens=12, temperature=0.8, seed=3) for p in (TOKENS, prompt, long)]
    assert model.generate(prompt, max_tokens=12, temperature=0.8, seed=3).tokens == streams[2].result().tokens
    assert streams[1].result().tokens == streams[2].result().tokens
    penalties = {"repeat_penalty": 1.3, "repeat_last_n": 8, "presence_penalty": 0.5, "seed": 3}
    penalised = [model.generate(p, max_tokens=12, **penalties).tokens for p in (prompt, long)]  # type: ignore[call-overload]
    assert penalised[0] == penalised[1]


def test_the_prefix_cache_knows_rows_by_their_contents(llama: Engine) -> None:
    rows = table(llama)[TOKENS * 2]
    first = llama.generate([1, Embedded(rows), 5, 6], max_tokens=2)
    assert first.usage.cached_tokens == 0
    assert llama.generate([1, Embedded(rows.copy()), 5, 9], max_tokens=2).usage.cached_tokens >= 32
    other = rows.copy()
    other[3] += 1
    assert llama.generate([1, Embedded(other), 5, 6], max_tokens=2).usage.cached_tokens < 16
    named = [llama.generate([1, Embedded(rows, key="a picture"), 5], max_tokens=1) for _ in range(2)]
    assert [answer.usage.cached_tokens >= 32 for answer in named] == [False, True]


def test_rows_that_must_stay_together_do(llama: Engine) -> None:
    rows = table(llama)
    prompt = [*TOKENS, Embedded(rows[TOKENS], whole=True), *TOKENS, Embedded(rows[TOKENS[:9]], whole=True), 5]
    inside = {*range(21, 40), *range(61, 69)}
    others = [llama.stream(TOKENS * 3, max_tokens=30, temperature=0) for _ in range(2)]
    reached: list[int] = []
    llama.generate(prompt, max_tokens=3, cache_prompt=False, on_delta=lambda delta: reached.append(delta.computed))
    assert not inside & {*reached}, reached
    assert 20 in reached, "a step ended where the first of them begin"
    assert all(other.result().usage.completion_tokens for other in others)
    with pytest.raises(CapacityError, match="30 rows must be computed in one step, which has room for 29"):
        llama.generate([1, Embedded(rows[[*TOKENS, *TOKENS[:10]]], whole=True)])


def test_m_rope_positions(speaking: Callable[[str], GGUF]) -> None:
    """Positions of rows are those given; what follows counts on from them. In a text of rows they change nothing."""
    for name in ("qwen2vl-dense", "qwen3vl-dense"):
        results = {}
        for backend in ("cpu", "reference"):
            with llamina.load(speaking(name), backend=backend, kv_type="f32") as engine:
                rows = table(engine)[TOKENS]
                line = np.arange(20)[:, None].repeat(3, 1)
                grid = np.stack([np.zeros(20), np.arange(20) // 5, np.arange(20) % 5], 1).astype(np.int32)
                text = [3, Embedded(rows, positions=line), 4, 5]
                assert np.array_equal(engine.logits(text), engine.logits([3, *TOKENS, 4, 5]))
                picture = [3, Embedded(rows, positions=grid), 4, 5]
                results[backend] = seen = engine.logits(picture)[-1]
                assert not np.allclose(seen, engine.logits(text)[-1])
                tail = [3, Embedded(rows, positions=grid, advance=20), 4, 5]
                assert not np.allclose(seen, engine.logits(tail)[-1])
                answer = engine.generate(picture, max_tokens=6, temperature=0)
                tokens = [3, Embedded(rows, positions=grid), 4, 5, *answer.tokens[:5]]
                assert int(engine.logits(tokens)[-1].argmax()) == answer.tokens[5], "decode counts on as prefill does"
        error = np.sum(np.square(results["cpu"] - results["reference"])) / np.sum(np.square(results["reference"]))
        assert error < 1e-9


def test_what_cannot_be(llama: Engine) -> None:
    rows = table(llama)[TOKENS]
    with pytest.raises(RequestError, match="63 numbers each: the model's embeddings have 256"):
        llama.generate([1, Embedded(rows[:, :63])])
    for wrong in (rows[0], rows[:0], np.full((2, 256), np.nan)):
        with pytest.raises(RequestError):
            Embedded(wrong)
    with pytest.raises(RequestError, match=r"it must be \[20, 3\]"):
        Embedded(rows, positions=np.zeros((20, 4), np.int32))
    with pytest.raises(RequestError, match="advance is 0"):
        Embedded(rows, advance=0)
    for option in ("truncate", "context_shift"):
        with pytest.raises(RequestError, match="rows cannot be dropped"):
            llama.generate([1, Embedded(rows)], **{option: True})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="it must be off"):
        llama.generate([1, Embedded(rows)], speculate="ngram")
    with pytest.raises(RequestError, match="outside the vocabulary"):
        llama.generate([1, -5])


def test_rows_both_ways_have_the_same_bits_among_others(model: Engine) -> None:
    """Whichever step they fall into, and after a prefix that ends in the middle of them."""
    if model.runner.model.config.architecture == "mamba2":
        return  # attends to nothing
    rows = table(model)[TOKENS + TOKENS[:5]]
    part = Embedded(rows, both_ways=True)
    prompt = [*TOKENS[:9], part, *TOKENS[10:]]
    alone = model.logits(prompt)
    streams = [model.stream(p, max_tokens=3, temperature=0.0) for p in (TOKENS * 3, prompt, prompt, TOKENS)]
    found = [stream.result() for stream in streams]
    assert found[1].tokens == found[2].tokens == [int(alone[-1].argmax()), *found[1].tokens[1:]]
    assert np.array_equal(model.logits(prompt), alone)
    assert not np.array_equal(model.logits([*TOKENS[:9], Embedded(rows), *TOKENS[10:]]), alone)
    with pytest.raises(CapacityError, match="in one step"):
        model.generate([Embedded(np.repeat(rows, 2, 0), both_ways=True)])


def test_snapshots_keep_rows(model: Engine) -> None:
    rows, places = table(model)[TOKENS], np.stack([np.zeros(20), *np.divmod(np.arange(20), 5)], 1).astype(np.int32)
    prompt = [*TOKENS, Embedded(rows, places, 5), *TOKENS]
    stream = model.stream(prompt, max_tokens=6, seed=4)
    begun = model.snapshot(stream.sequence)
    next(stream)
    later, whole = model.snapshot(stream.sequence), stream.result().tokens
    for data in (begun, later):
        assert model.follow(model.resume(data)).result().tokens == whole
