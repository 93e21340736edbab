"""Sampling options through the public API."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import InvalidSampling, RequestError
from llamina.gguf import GGUF

PROMPT = "Once upon a time"
OPTIONS: list[dict[str, Any]] = [
    {"temperature": 1.5, "top_k": 0, "top_p": 1.0},
    {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
    {"min_p": 0.2, "top_k": 0, "temperature": 2.0},
    {"typical_p": 0.3},
    {"top_n_sigma": 0.5, "temperature": 3.0},
    {"top_a": 0.5, "temperature": 3.0},
    {"epsilon_cutoff": 0.1, "temperature": 3.0},
    {"eta_cutoff": 0.3, "temperature": 3.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"repeat_penalty": 1.5},
    {"frequency_penalty": 1.0},
    {"presence_penalty": 1.0, "repeat_last_n": -1},
    {"dry_multiplier": 3.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1, "dry_sequence_breakers": []},
    {"mirostat": 1, "mirostat_tau": 2.0},
    {"mirostat": 2, "mirostat_eta": 0.3},
    {"logit_bias": {13: 8.0}},
    {"banned_tokens": [*range(300, 400)]},
    {"samplers": ["temperature", "top_k"], "temperature": 2.0},
    {"logits_processor": lambda tokens, logits: logits * 0.3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(o))
def test_every_option_changes_the_story(engine: Engine, options: dict[str, Any]) -> None:
    """The same seed tells the same story, another one with the option."""
    common = {"seed": 11, "max_tokens": 150}
    story = engine.generate(PROMPT, **common, **options).tokens
    assert story == engine.generate(PROMPT, **common, **options).tokens
    assert story != engine.generate(PROMPT, **common).tokens


def test_a_draw_does_not_depend_on_company(stories: Path) -> None:
    """Alone, batched, and preempted again and again: each request's draws are its own."""
    options = {"seed": 3, "temperature": 1.3, "top_k": 0, "xtc_probability": 0.5, "mirostat": 2, "max_tokens": 40}
    with llamina.load(stories, threads=1, context=128) as engine:
        alone = [engine.generate([1, 300 + i], **options).tokens for i in range(6)]
    for room in (128, 1024):
        with llamina.load(stories, threads=1, context=128, cache_tokens=room, step_tokens=7) as engine:
            together = [engine.stream([1, 300 + i], **options) for i in range(6)]
            assert [stream.result().tokens for stream in together] == alone


def test_a_story_is_taken_up_where_it_stopped(engine: Engine) -> None:
    """The draw of a position is the same when the tokens before it are given as a prompt."""
    options: dict[str, Any] = {"seed": 9, "temperature": 1.2, "ignore_eos": True}
    tokens = engine.encode(PROMPT)
    whole = engine.generate(tokens, max_tokens=30, **options).tokens
    assert whole[12:] == engine.generate([*tokens, *whole[:12]], max_tokens=18, **options).tokens


def test_banned_tokens_do_not_occur(engine: Engine) -> None:
    usual = engine.generate(PROMPT, temperature=0, max_tokens=30).tokens
    banned = [*set(usual[:10])]
    for options in ({"banned_tokens": banned}, {"logit_bias": dict.fromkeys(banned, float("-inf"))}):
        assert not set(engine.generate(PROMPT, temperature=0, max_tokens=30, **options).tokens) & set(banned)


def test_tokens_the_file_suppresses(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = engine.generate(PROMPT, temperature=0, max_tokens=5).tokens
    monkeypatch.setattr(engine.tokenizer, "suppressed", frozenset(usual))
    assert not set(engine.generate(PROMPT, temperature=0, max_tokens=5).tokens) & set(usual)


def test_a_damaged_model_says_so(stories: Path, tmp_path: Path) -> None:
    """However tokens are chosen, none is where one weight is no number."""
    damaged, data = tmp_path / "damaged.gguf", bytearray(stories.read_bytes())
    with GGUF.open(stories) as file:
        at = file.tensors["blk.2.attn_norm.weight"].offset + 4 * 5
    data[at : at + 4] = np.float32(np.nan).tobytes()
    damaged.write_bytes(data)
    with llamina.load(damaged) as engine:
        for options in ({"temperature": 0}, {}, *OPTIONS):
            with pytest.raises(InvalidSampling, match="the model is damaged"):
                engine.generate(PROMPT, max_tokens=5, **options)
        for read in (engine.embed, engine.token_scores, lambda text: engine.score(text, " there"), engine.perplexity):
            with pytest.raises(RequestError, match="its file is damaged"):
                read(PROMPT)
        with pytest.raises(InvalidSampling, match="the model is damaged"):
            engine.generate(PROMPT, beam_width=2)


def test_breakers_stop_the_penalty(engine: Engine) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 80, "dry_multiplier": 5.0, "dry_penalty_last_n": -1}
    without = engine.generate(PROMPT, **options, dry_sequence_breakers=[]).tokens
    assert without != engine.generate(PROMPT, **options, dry_sequence_breakers=[" ", ".", ","]).tokens
    with pytest.raises(InvalidSampling, match="dry_sequence_breakers"):
        engine.generate(PROMPT, dry_sequence_breakers="\n")


def test_the_hook_sees_all_tokens(engine: Engine) -> None:
    lengths: list[int] = []

    def hook(tokens: Sequence[int], logits: np.ndarray) -> np.ndarray:
        lengths.append(len(tokens))
        logits[: len(logits) // 2] = -np.inf  # in place is fine
        return logits

    tokens = engine.encode(PROMPT)
    found = engine.generate(tokens, logits_processor=hook, max_tokens=6).tokens
    assert lengths == [len(tokens) + i for i in range(6)] and min(found) >= engine.runner.plan.vocab // 2
    with pytest.raises(RequestError, match="logits_processor") as caught:
        engine.generate(PROMPT, logits_processor=5)
    assert caught.value.param == "logits_processor"


def test_a_failing_hook_ends_its_own_request(engine: Engine) -> None:
    def fail(tokens: Sequence[int], logits: np.ndarray) -> np.ndarray:
        if len(tokens) > 8:
            raise ZeroDivisionError("the hook's own")
        return logits

    usual = engine.generate(PROMPT, temperature=0, max_tokens=12).tokens
    bad = engine.stream(PROMPT, temperature=0, max_tokens=12, logits_processor=fail)
    good = engine.stream(PROMPT, temperature=0, max_tokens=12)
    assert good.result().tokens == usual
    with pytest.raises(ZeroDivisionError, match="the hook's own"):
        bad.result()
    assert bad.sequence.finish_reason == "error" and not engine.core.running


def test_everything_banned(engine: Engine) -> None:
    with pytest.raises(InvalidSampling, match="no token is left"):
        engine.generate(PROMPT, banned_tokens=range(engine.runner.plan.vocab))


@pytest.mark.parametrize("options", [{"banned_tokens": [512]}, {"logit_bias": {512: 1.0}}], ids=str)
def test_tokens_outside_the_vocabulary(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSampling, match="vocabulary of 512") as caught:
        engine.submit(Request([1], Sampling(**options)))
    assert caught.value.param in options and not engine.core.waiting
