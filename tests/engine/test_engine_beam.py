"""Beam search against one written out over the logits of whole sequences."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine
from llamina.errors import RequestError
from llamina.gguf import GGUF
from lora_files import draw, save

PROMPT = "Once upon a time, there was"


def by_hand(
    engine: Engine, prompt: list[int], width: int, most: int, penalty: float, early: bool
) -> list[tuple[Any, ...]]:
    """(tokens, score, whether it ended) of the best answers, everything computed again for every beam."""

    def score(total: float, length: int) -> float:
        return total / length**penalty

    beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    done: list[tuple[tuple[int, ...], float, bool]] = []
    for length in range(1, most + 1):
        ways = []
        for at, (tokens, total) in enumerate(beams):
            logits = engine.logits([*prompt, *tokens])[-1].astype(np.float64)
            logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            for token in np.argsort(-logprobs, kind="stable")[: width + 1].tolist():
                ways.append((total + logprobs[token], -at, (*tokens, token)))
        ways.sort(key=lambda way: (-way[0], -way[1]))
        beams = []
        for total, _, tokens in ways:
            if tokens[-1] in engine.tokenizer.eog:
                done.append((tokens[:-1], score(total, length), True))
            else:
                beams.append((tokens, total))
            if len(beams) == width:
                break
        done = sorted(done, key=lambda d: -d[1])[:width]
        if len(done) == width:
            longest = most if penalty > 0 else length + 1
            if early or all(score(total, longest) <= done[-1][1] for _, total in beams):
                return done
    done += [(tokens, score(total, most), False) for tokens, total in beams]
    return sorted(done, key=lambda d: -d[1])[:width]


@pytest.fixture(scope="module")
def ending(stories: Path) -> Any:
    """The tiny model with a full stop as the end of an answer, so that answers of many lengths end."""
    with llamina.load(stories, threads=1) as engine:
        stop = engine.tokenizer.encode(".", continued=True)[0]
        engine.tokenizer.eog = frozenset({*engine.tokenizer.eog, stop})
        yield engine


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize(("penalty", "early"), [(1.0, True), (1.0, False), (0.0, False), (2.0, True), (-1.0, False)])
def test_by_hand(ending: Engine, width: int, penalty: float, early: bool) -> None:
    prompt = ending.encode(PROMPT)
    expected = by_hand(ending, prompt, width, 14, penalty, early)
    found = ending.generate(
        prompt, beam_width=width, n=width, max_tokens=14, length_penalty=penalty, early_stopping=early
    )
    answers = [found, *found.alternatives]
    assert [tuple(a.tokens) for a in answers] == [tuple(tokens) for tokens, _, _ in expected]
    assert [a.finish_reason == "stop" for a in answers] == [ended for _, _, ended in expected]
    assert [a.score for a in answers] == pytest.approx([score for _, score, _ in expected], abs=1e-4)
    for answer in answers:
        length = len(answer.tokens) + (answer.finish_reason == "stop")
        assert answer.cumulative_logprob is not None
        assert answer.score == pytest.approx(answer.cumulative_logprob / length**penalty)
        assert answer.text == ending.tokenizer.decode(answer.tokens, continued=True)
        assert answer.usage.prompt_tokens == len(prompt)
    core = ending.core
    assert not core.running and not core.waiting and core.pages.free == core.pages.total


def test_one_beam_is_greedy(engine: Engine) -> None:
    greedy = engine.generate(PROMPT, temperature=0, max_tokens=30)
    assert engine.generate(PROMPT, beam_width=1, max_tokens=30).tokens == greedy.tokens


def test_adapters(stories: Path, tmp_path: Path) -> None:
    """One beam with an adapter is greedy with it."""
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(5)]
    lora = save(tmp_path / "lora.gguf", "llama", draw(stories, names, 4, 1, 1.0))
    with llamina.load(stories, threads=1) as engine:
        use = {engine.load_adapter(lora): 1.0}
        greedy = engine.generate(PROMPT, temperature=0, max_tokens=20, adapters=use)
        assert engine.generate(PROMPT, beam_width=1, max_tokens=20, adapters=use).tokens == greedy.tokens
        assert engine.generate(PROMPT, beam_width=1, max_tokens=20).tokens != greedy.tokens
        few, many = (engine.generate(PROMPT, beam_width=n, max_tokens=20, adapters=use).score for n in (1, 4))
        assert few is not None and many is not None and many >= few


def test_more_beams_find_likelier_answers(engine: Engine) -> None:
    def likeliness(prompt: list[int], width: int) -> float:
        tokens = engine.generate(prompt, beam_width=width, max_tokens=25, length_penalty=0.0).tokens
        scored = engine.generate([*prompt, *tokens], prompt_logprobs=0, max_tokens=1).prompt_logprobs
        return sum(found.logprob for found in (scored or [])[len(prompt) :] if found)

    prompts = [engine.encode(text) for text in ("The", "Tom and", "One day", "Why")]
    found = [(likeliness(prompt, 8), likeliness(prompt, 1)) for prompt in prompts]
    assert all(wide >= narrow for wide, narrow in found) and any(wide > narrow for wide, narrow in found)


@pytest.mark.parametrize("options", [{"step_tokens": 4}, {"cache_tokens": 96}, {"threads": 2}], ids=str)
def test_little_room_and_company(stories: Path, options: dict[str, Any]) -> None:
    """Beams that are preempted or wait for others find the same."""
    with llamina.load(stories, threads=1, context=64) as engine:
        expected = engine.generate(PROMPT, beam_width=4, n=4, max_tokens=24)
        story = engine.generate("The cat", seed=1, max_tokens=40).tokens
    with llamina.load(stories, context=64, **{"threads": 1, **options}) as engine:
        other = engine.stream("The cat", seed=1, max_tokens=40)
        found = engine.generate(PROMPT, beam_width=4, n=4, max_tokens=24)
        assert [a.tokens for a in (found, *found.alternatives)] == [
            a.tokens for a in (expected, *expected.alternatives)
        ]
        assert other.result().tokens == story


def test_a_full_context(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=24) as engine:
        tokens = engine.encode(PROMPT)
        found = engine.generate(tokens, beam_width=3, max_tokens=None)
        assert found.finish_reason == "length" and len(tokens) + len(found.tokens) == 24


def test_beams_share_their_pages(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=512) as engine:
        prompt = engine.encode(PROMPT) * 20
        free = []
        engine.stepper.after_step.append(lambda: free.append(engine.core.pages.free))
        engine.generate(prompt, beam_width=6, max_tokens=12)
        held = engine.core.pages.total - min(free)
        assert held <= -(-len(prompt) // 16) + 6 * 2


@pytest.mark.parametrize("name", ["mamba2-dense", "jamba-dense"])
def test_recurrent_models(speaking: Callable[[str], GGUF], name: str) -> None:
    """Their states cannot be shared or taken back, only kept and copied: the search is the same."""
    with llamina.load(speaking(name), threads=1, context=64) as engine:
        prompt = [7 * i % 61 for i in range(30)]
        expected = by_hand(engine, prompt, 3, 8, 1.0, True)
        found = engine.generate(prompt, beam_width=3, n=3, max_tokens=8)
        assert [tuple(a.tokens) for a in (found, *found.alternatives)] == [tokens for tokens, _, _ in expected]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 2.0}, "beam_width"),
        ({"beam_width": 99}, "beam_width"),
        ({"beam_width": 2, "n": 3}, "n"),
        ({"beam_width": 2, "temperature": 0.5}, "temperature"),
        ({"beam_width": 2, "stop": ["x"]}, "stop"),
        ({"beam_width": 2, "regex": "x"}, "regex"),
        ({"beam_width": 2, "best_of": 3}, "best_of"),
        ({"beam_width": 2, "length_penalty": "long"}, "length_penalty"),
        ({"beam_width": 2, "early_stopping": 1}, "early_stopping"),
        ({"beam_width": 2, "max_tokens": 0}, "max_tokens"),
        ({"length_penalty": 2.0}, "length_penalty"),
    ],
    ids=str,
)
def test_refusals(engine: Engine, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate(PROMPT, **options)
    assert caught.value.param == param
