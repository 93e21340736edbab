"""Several answers to one prompt."""

from pathlib import Path
from typing import Any

import pytest

import llamina
from llamina import Engine
from llamina.errors import RequestError
from llamina.ops.batch import PAGE

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine"
OPTIONS: dict[str, Any] = {"seed": 7, "temperature": 1.2, "max_tokens": 20}


def test_each_draws_for_itself(engine: Engine) -> None:
    result = engine.generate(PROMPT, n=4, **OPTIONS)
    answers = [result, *result.alternatives]
    assert len(answers) == 4 and len({answer.text for answer in answers}) == 4
    assert result.tokens == engine.generate(PROMPT, **OPTIONS).tokens, "the first is the one there would be alone"
    for index, answer in enumerate(answers):
        assert engine.generate(PROMPT, index=index, **OPTIONS).tokens == answer.tokens
    assert not result.alternatives[0].alternatives


def test_the_prompt_is_computed_once(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=256, step_tokens=16) as engine:
        n = len(engine.encode(PROMPT))
        streams = engine.streams(PROMPT, 4, **OPTIONS)
        computed = []
        run = engine.runner.program.launch
        engine.runner.program.launch = lambda batch: computed.append(batch.n_tokens) or run(batch)  # type: ignore[assignment, func-returns-value, method-assign]
        results = [stream.result() for stream in streams]
        assert sum(computed) <= n + 3 * PAGE + sum(len(r.tokens) for r in results)
        assert [r.usage.cached_tokens for r in results] == [0] + [n // PAGE * PAGE] * 3
        assert [r.tokens for r in results] == [
            engine.generate(PROMPT, index=i, cache_prompt=False, **OPTIONS).tokens for i in range(4)
        ]


def test_waiting_for_a_leader_holds_nobody_up(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=256, step_tokens=8) as engine:
        streams = engine.streams(PROMPT, 3, **OPTIONS)
        other = engine.stream("The cat", **OPTIONS)
        engine.step()
        assert other.sequence.lease is not None and streams[1].sequence.lease is None
        streams[0].close()  # the leader is gone: the next takes its place
        assert len(streams[1].result().tokens) == len(streams[2].result().tokens) == 20
        assert streams[0].sequence.finish_reason == "cancelled" and other.result().tokens


@pytest.mark.parametrize("options", [{"cache_tokens": 64}, {"max_sequences": 2}, {"step_tokens": 3}], ids=str)
def test_little_room(stories: Path, options: dict[str, Any]) -> None:
    with llamina.load(stories, threads=1, context=128) as engine:
        expected = [engine.generate("The cat", index=i, **OPTIONS).tokens for i in range(5)]
    with llamina.load(stories, threads=1, context=128, **options) as engine:
        result = engine.generate("The cat", n=5, **OPTIONS)
        assert [answer.tokens for answer in (result, *result.alternatives)] == expected


def test_best_of(engine: Engine) -> None:
    every = engine.generate(PROMPT, n=6, logprobs=0, **OPTIONS)
    answers = [every, *every.alternatives]
    mean = {tuple(a.tokens): (a.cumulative_logprob or 0) / len(a.tokens) for a in answers}
    ranked = sorted(mean, key=lambda tokens: -mean[tokens])
    best = engine.generate(PROMPT, n=3, best_of=6, **OPTIONS)
    assert [tuple(a.tokens) for a in (best, *best.alternatives)] == ranked[:3]
    assert best.logprobs is None
    assert engine.generate(PROMPT, best_of=6, logprobs=1, **OPTIONS).logprobs is not None


def test_grammars(engine: Engine) -> None:
    result = engine.generate(PROMPT, n=5, regex="[a-z]{3}", seed=1, temperature=3.0)
    texts = [answer.text for answer in (result, *result.alternatives)]
    assert all(len(text) == 3 and text.islower() for text in texts) and len(set(texts)) > 1


def test_chat(smol: Engine) -> None:
    prompt = smol.chat_tokens(smol.render_chat([{"role": "user", "content": "Name a colour."}]))
    result = smol.generate(prompt, n=2, seed=1, temperature=1.0, max_tokens=8)
    assert len(result.alternatives) == 1 and result.alternatives[0].usage.cached_tokens > 10


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": True}, "best_of"),
        ({"index": -1}, "index"),
    ],
    ids=str,
)
def test_refusals(engine: Engine, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate(PROMPT, **options)
    assert caught.value.param == param
