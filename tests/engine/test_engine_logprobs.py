"""Log-probabilities of generated tokens and of the prompt's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.engine import Sequence
from llamina.errors import RequestError
from llamina.sampling import TokenLogprob, logprob_of

PROMPT = "Once upon a time, there was a little"


def expected(engine: Engine, tokens: list[int]) -> np.ndarray:
    """log softmax of the logits after every token."""
    logits = engine.logits(tokens).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def check(found: TokenLogprob | None, row: np.ndarray, token: int, n: int) -> None:
    assert found is not None and found.token == token
    assert found.logprob == pytest.approx(row[token], abs=1e-5)
    order = np.argsort(-row, kind="stable")[:n]
    assert [t for t, _ in found.top] == order.tolist()
    assert [p for _, p in found.top] == pytest.approx(row[order].tolist(), abs=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"seed": 1, "temperature": 1.5},
        {"seed": 1, "repeat_penalty": 1.5, "logit_bias": {3: -5.0}},
        {"seed": 2, "regex": "[a-z ]{5,40}"},
    ],
    ids=str,
)
def test_they_are_the_models_own(engine: Engine, options: dict[str, Any], n: int) -> None:
    """Whatever the sampler does afterwards."""
    tokens = engine.encode(PROMPT)
    result = engine.generate(tokens, max_tokens=12, logprobs=n, prompt_logprobs=n, **options)
    rows = expected(engine, [*tokens, *result.tokens])
    assert result.logprobs is not None and result.prompt_logprobs is not None
    assert len(result.logprobs) == len(result.tokens) and len(result.prompt_logprobs) == len(tokens)
    for i, found in enumerate(result.logprobs):
        check(found, rows[len(tokens) - 1 + i], result.tokens[i], n)
    assert result.prompt_logprobs[0] is None
    for i, found in enumerate(result.prompt_logprobs[1:], 1):
        check(found, rows[i - 1], tokens[i], n)
    assert result.cumulative_logprob == pytest.approx(sum(f.logprob for f in result.logprobs if f))


def test_asking_changes_nothing(engine: Engine) -> None:
    plain = engine.generate(PROMPT, seed=4, max_tokens=20)
    asked = engine.generate(PROMPT, seed=4, max_tokens=20, logprobs=3, prompt_logprobs=3)
    assert asked.tokens == plain.tokens
    assert plain.logprobs is None and plain.prompt_logprobs is None and plain.cumulative_logprob is None


@pytest.mark.parametrize(
    "options", [{"step_tokens": 3}, {"cache_tokens": 96}, {"step_tokens": 4, "max_sequences": 2}], ids=str
)
def test_chunks_and_preemption(stories: Path, options: dict[str, Any]) -> None:
    """Prompts in pieces, computed again, and ones whose beginning others have computed."""
    asked = {"max_tokens": 30, "seed": 5, "logprobs": 2, "prompt_logprobs": 2, "temperature": 1.2}
    prompts = [PROMPT, PROMPT + " girl named Lily", "The cat"]
    with llamina.load(stories, threads=1, context=128) as engine:
        alone = [engine.generate(p, cache_prompt=False, **asked) for p in prompts]
    with llamina.load(stories, threads=1, context=128, **options) as engine:
        engine.generate(PROMPT, max_tokens=1)
        streams = [engine.stream(p, **asked) for p in prompts]
        together = [stream.result() for stream in streams]
    for one, other in zip(alone, together, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == other.logprobs and one.prompt_logprobs == other.prompt_logprobs


def test_deltas_tell(engine: Engine) -> None:
    sequence = engine.submit(Request(engine.encode(PROMPT), Sampling(temperature=0), max_tokens=4, logprobs=1))
    seen = []
    while sequence.finish_reason is None:
        for delta in engine.step():
            assert [found.token for found in delta.logprobs if found] == list(delta.tokens)
            seen += delta.logprobs
    assert seen == sequence.logprobs.tokens and len(seen) == 4


def test_forks_rewinds_and_snapshots(engine: Engine) -> None:
    def run(*sequences: Sequence) -> None:
        while any(sequence.finish_reason is None for sequence in sequences):
            engine.step()

    options: dict[str, Any] = {"max_tokens": 12, "logprobs": 2, "prompt_logprobs": 1}
    first = engine.submit(Request(engine.encode(PROMPT), Sampling(seed=1), **options))
    while len(first.generated) < 4:
        engine.step()
    second, data = engine.fork(first), engine.snapshot(first)
    run(first, second)
    third = engine.resume(data)
    run(third)
    assert first.logprobs.state() == second.logprobs.state() == third.logprobs.state()
    assert len(first.logprobs.tokens) == 12
    whole = list(first.logprobs.tokens)
    engine.rewind(first, 8, first.generated[4:6])
    run(first)
    assert first.logprobs.tokens[:4] == whole[:4] and first.logprobs.tokens[4:6] == [None, None]
    assert first.logprobs.tokens[6:] == whole[6:], "the draws of these places"


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "5"])
def test_refusals(engine: Engine, name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"{name} is") as caught:
        engine.generate(PROMPT, **{name: value})
    assert caught.value.param == name


def test_truncated_prompts(engine: Engine) -> None:
    with pytest.raises(RequestError, match="truncate"):
        engine.generate(PROMPT, prompt_logprobs=1, truncate=True)


def test_of_a_wide_vocabulary() -> None:
    logits = np.random.default_rng(1).normal(0, 4, 70000).astype(np.float32)
    row = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    check(logprob_of(logits, 17, 20), row, 17, 20)
    banned = np.where(np.arange(70000) % 2 == 0, logits, -np.inf).astype(np.float32)
    assert logprob_of(banned, 1, 3).logprob == -np.inf
