"""Tokens guessed ahead: the answer is the same token for token, whoever guesses and however it is sampled."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import RequestError
from llamina.gguf import GGUF, Tensor, open_model, tensor_type, write
from llamina.quant import decode, encode

STORY = "One day Lily and Tim went to the park. They saw a dog. One day Lily and Tim went to the park."
GREEDY: dict[str, Any] = {"temperature": 0}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "seeded": {"temperature": 0.8, "seed": 3},
    "hot": {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "seed": 4},
    "penalties": {
        "temperature": 0.8,
        "seed": 5,
        "repeat_penalty": 1.1,
        "frequency_penalty": 0.2,
        "dry_multiplier": 0.5,
    },
    "mirostat": {"mirostat": 2, "seed": 6},
    "xtc": {"temperature": 0.9, "xtc_probability": 0.3, "seed": 7},
    "stop": {"temperature": 0, "stop": ["happy", "zzz"]},
    "regex": {"temperature": 0, "regex": r"( the park\.| a dog)+"},
    "schema": {"temperature": 0.7, "seed": 8, "json_schema": {"type": "array", "items": {"const": "the park"}}},
    "processor": {
        "temperature": 0,
        "logits_processor": lambda tokens, logits: logits - (len(tokens) % 3 == 0) * logits,
    },
}
MODES: list[Any] = ["auto", "ngram", 1, 4, 64]


@pytest.fixture(scope="module")
def rough(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with its matrices in four bits: it often says the same, but not always."""
    file, kind = open_model(stories), tensor_type("Q4_0")

    def coarse(t: Tensor) -> Any:
        fits = len(t.shape) > 1 and t.shape[-1] % 32 == 0
        return (t.name, t.shape, kind, encode(decode(t.data, t.type, t.shape), kind)) if fits else t

    path = tmp_path_factory.mktemp("drafts") / "rough.gguf"
    write(path, file.metadata, map(coarse, file.tensors.values()))
    return path


@pytest.fixture(scope="module")
def pair(stories: Path, rough: Path) -> Iterator[Engine]:
    with llamina.load(stories, threads=1, context=512, draft=rough) as found:
        yield found


@pytest.mark.parametrize("way", WAYS)
def test_the_same_answer(engine: Engine, way: str) -> None:
    """Text, logprobs and the reason to end, for every mode."""
    options = WAYS[way] | {"max_tokens": 60, "logprobs": 2}
    plain = engine.generate(STORY, speculate="off", **options)
    assert plain.usage.drafted_tokens == 0 and "off" in plain.usage.speculation_off
    counts = np.zeros(2, int)
    for mode in MODES:
        found = engine.generate(STORY, speculate=mode, **options)
        told = (found.tokens, found.text, found.finish_reason, found.logprobs)
        assert told == (plain.tokens, plain.text, plain.finish_reason, plain.logprobs), mode
        counts += found.usage.drafted_tokens, found.usage.accepted_tokens
    assert counts[0] > 0 and (way not in ("greedy", "seeded") or counts[0] > counts[1] > 0)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("stop", "processor")])
def test_the_same_answer_with_a_draft_model(pair: Engine, way: str) -> None:
    plain = pair.generate(STORY, max_tokens=60, speculate="off", **WAYS[way])
    for mode in ("auto", "draft", 1, 5):
        found = pair.generate(STORY, max_tokens=60, speculate=mode, **WAYS[way])
        assert (found.tokens, found.text) == (plain.tokens, plain.text), mode
        if isinstance(mode, int):
            assert found.usage.drafted_tokens and (way == "regex" or found.usage.accepted_tokens)


def test_a_draft_model_that_is_the_model(stories: Path) -> None:
    """It draws with the same numbers, so all it says is right, also when it is sampled."""
    with llamina.load(stories, threads=1, context=256, draft=stories) as engine:
        for options in (GREEDY, WAYS["hot"]):
            usage = engine.generate(STORY, max_tokens=41, ignore_eos=True, speculate=7, **options).usage
            assert usage.acceptance_rate == 1 and usage.accepted_tokens >= 35


def test_together(pair: Engine) -> None:
    """Many at once, each with its own way to guess; the others notice nothing."""
    prompts = [STORY, "Once upon a time", "Tim had a red ball. Tim had a red", "The dog was sad. The dog"]
    options = {"max_tokens": 40, "temperature": 0.9, "ignore_eos": True}
    alone = [pair.generate(p, seed=i, speculate="off", **options).tokens for i, p in enumerate(prompts * 2)]
    modes = ["auto", 3, "ngram", "off", "draft", 9, 1, "auto"]
    streams = [pair.stream(p, seed=i, speculate=modes[i], **options) for i, p in enumerate(prompts * 2)]
    assert [stream.result().tokens for stream in streams] == alone
    assert pair.core.pages.free == pair.core.pages.total


def test_with_little_room(stories: Path) -> None:
    """Guesses take nobody's pages, end where the context ends, and give back what they had."""
    with llamina.load(stories, threads=1, context=96, cache_tokens=128) as engine:
        for shift in (False, True):
            options = {"max_tokens": 150, "temperature": 0, "ignore_eos": True, "context_shift": shift}
            plain = [engine.generate([1, n, n, n, n], speculate="off", **options) for n in (40, 50)]
            streams = [engine.stream([1, n, n, n, n], speculate=64, **options) for n in (40, 50)]
            for one, other in zip(plain, streams, strict=True):
                assert other.result().tokens == one.tokens and other.result().finish_reason == one.finish_reason
                assert other.result().usage.drafted_tokens
            assert engine.core.pages.free == engine.core.pages.total


@pytest.mark.parametrize("name", ["jamba-dense", "mamba2-dense", "gemma3-dense", "deepseek2-moe"])
def test_every_kind_of_state(speaking: Callable[[str], GGUF], name: str) -> None:
    """Recurrent states are brought back; without being asked nothing is tried with them, and the result says why."""
    with llamina.load(speaking(name), threads=1, context=256) as engine:
        recurrent = engine.core.pages.recurrent
        few = dict.fromkeys(range(20, 24), 100.0)  # so few tokens that some guesses must be right
        for seed in range(3):
            options = {"max_tokens": 50, "ignore_eos": True, "logit_bias": few, "temperature": 1.5, "seed": seed}
            plain = engine.generate([1, 2, 3], speculate="off", **options)
            for mode in ("ngram", 2, 30):
                found = engine.generate([1, 2, 3], speculate=mode, **options)
                assert found.tokens == plain.tokens
            assert found.usage.drafted_tokens > found.usage.accepted_tokens > 0
        usage = engine.generate([1, 2, 3] * 9, max_tokens=20, ignore_eos=True, temperature=0).usage
        assert bool(usage.speculation_off) == recurrent and ("recurrent" in usage.speculation_off) == recurrent


def test_a_real_model(smol: Engine) -> None:
    code = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\n"
    for options in ({"temperature": 0}, {"temperature": 0.7, "seed": 1}):
        plain = smol.generate(code * 3, max_tokens=48, speculate="off", **options)
        found = smol.generate(code * 3, max_tokens=48, speculate=8, **options)
        assert found.tokens == plain.tokens and found.usage.accepted_tokens > 10


def test_the_distribution_is_the_models(pair: Engine) -> None:
    """Chi-square over many seeds: tokens after guesses of the other model come as often as the model says."""
    prompt, n = pair.encode("Once upon a time, there was a little girl named Lily. She loved to play"), 600
    whole = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}  # nothing is dropped
    options = {**whole, "max_tokens": 3, "ignore_eos": True}
    guessed = [pair.generate(prompt, seed=seed, speculate=2, **options) for seed in range(n)]
    assert sum(found.usage.accepted_tokens for found in guessed) > n / 4

    first = softmax(pair.logits(prompt)[-1])
    likely = [int(t) for t in np.flatnonzero(first > 1e-5)]
    second = sum(first[t] * softmax(pair.logits([*prompt, t])[-1]) for t in likely)
    check_same(Counter(found.tokens[1] for found in guessed), n * second / second.sum(), 0)

    plain = [pair.generate(prompt, seed=seed, speculate="off", **options) for seed in range(n, 3 * n)]
    counts = np.bincount([found.tokens[2] for found in plain], minlength=len(first))
    check_same(Counter(found.tokens[2] for found in guessed), counts / 2, 0.5)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def check_same(seen: Counter[int], expected: np.ndarray, noise: float) -> None:
    """As often as expected; of numbers that were counted themselves, `noise` is how much more they vary for that."""
    often = [int(t) for t in np.argsort(-expected) if expected[t] >= 5]
    pairs = [(seen[t], expected[t]) for t in often]
    pairs.append((seen.total() - sum(seen[t] for t in often), expected.sum() - expected[often].sum()))
    chi = sum((count - mean) ** 2 / (mean * (1 + noise)) for count, mean in pairs)
    df = len(often)
    assert df > 3 and (chi - df) / math.sqrt(2 * df) < 4


def test_a_snapshot_of_the_pair(pair: Engine, stories: Path) -> None:
    """The guesses' own state is not part of it: it is found again from the tokens, with or without the other model."""
    request = Request(pair.encode(STORY), Sampling(temperature=0.8, seed=9), 50, ignore_eos=True, speculate=4)
    sequence = pair.submit(request)
    while len(sequence.generated) < 20:
        pair.step()
    data, drafted = pair.snapshot(sequence), sequence.drafting.drafted
    whole = pair.follow(sequence).result()
    again = pair.resume(data)
    assert again.drafting.drafted == drafted > 0
    assert pair.follow(again).result().tokens == whole.tokens
    with llamina.load(stories, threads=1, context=512) as other:
        assert other.follow(other.resume(data)).result().tokens == whole.tokens


def test_which_model_drafts(stories: Path, rough: Path, smollm2: Path, tmp_path: Path) -> None:
    """Of a folder the one near a tenth of the size with the same vocabulary; a file with another one is refused."""
    for path in (stories, rough, smollm2):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with llamina.load(stories, threads=1, context=128, draft=tmp_path) as engine:
        assert engine.core.speculation.drafter is not None
        assert engine.generate(STORY, max_tokens=20, speculate=3, temperature=0).usage.accepted_tokens
    with pytest.raises(RequestError, match="another vocabulary"):
        llamina.load(stories, draft=smollm2)
    with pytest.raises(RequestError, match="none of the 3 models"):
        llamina.load(rough, draft=tmp_path)


@pytest.mark.parametrize("mode", ["fast", 0, -1, True, 1.5, None, "draft"])
def test_impossible_modes(engine: Engine, mode: object) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate([1, 2], speculate=mode)
    assert caught.value.param == "speculate" and not engine.core.waiting
