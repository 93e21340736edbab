"""Facts computed by llama.cpp: tokens, log-probabilities, continuations, perplexity.

stories260K has F32 weights, so it must agree closely. SmolLM2's are Q4_1, and both llama.cpp and we round
activations to 8 bits before they meet such weights, each in our way: see test_engine_reference.py for who is
how far from exact.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from engine_facts import facts, losses, margins, top_entries

import llamina
from llamina import Engine, Tokenizer

MARGIN = 0.5  # the lead of llama.cpp's first choice over its second above which we must choose alike
MODELS = [("engine", "stories260K_golden.json"), ("smol", "smollm2_golden.json")]


@pytest.fixture(params=MODELS, ids=["stories260K", "smollm2"])
def subject(request: pytest.FixtureRequest, golden: Callable[[str], Path]) -> tuple[Engine, dict[str, object]]:
    name, file = request.param
    found = facts(golden(file))
    return request.getfixturevalue(name), found


def test_tokens(subject: tuple[Engine, dict]) -> None:
    engine, found = subject
    for case in found["cases"]:
        assert engine.encode(case["prompt"], add_special=False) == case["tokens"]


def test_tokenizer_alone(stories: Path, golden: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.from_gguf(stories)
    for case in facts(golden("stories260K_golden.json"))["cases"]:
        assert tokenizer.encode(case["prompt"]) == case["tokens"]
        assert tokenizer.decode(case["greedy"], skip_special=False, continued=True) == case["greedy_text"]


def test_log_probabilities_of_float_weights(engine: Engine, golden: Callable[[str], Path]) -> None:
    for case in facts(golden("stories260K_golden.json"))["cases"]:
        ours, theirs = top_entries(engine.logits(case["tokens"]), case)
        assert np.abs(ours - theirs).max() < 0.01


def test_log_probabilities_of_quantized_weights(smol: Engine, golden: Callable[[str], Path]) -> None:
    """Llama.cpp's first choice, prompt by prompt, is as likely to us within 0.1.

    Unlikely tokens differ by more, also between llama.cpp and exact arithmetic (test_engine_reference.py).
    """
    for case in facts(golden("smollm2_golden.json"))["cases"]:
        ours, theirs = top_entries(smol.logits(case["tokens"]), case)
        assert np.abs(ours - theirs)[:, 0].mean() < 0.1, case["prompt"]
        assert np.average(np.abs(ours - theirs), weights=np.exp(theirs)) < 0.1, case["prompt"]


def test_choices_where_the_margin_is_clear(subject: tuple[Engine, dict]) -> None:
    """Teacher forcing: llama.cpp's own continuation goes in, so one close call does not spoil the rest."""
    engine, found = subject
    for case in found["cases"]:
        tokens, greedy = case["tokens"], case["greedy"]
        choices = engine.logits([*tokens, *greedy])[len(tokens) - 1 : -1].argmax(-1)
        clear = margins(case) > MARGIN
        assert (choices[clear] == np.array(greedy)[clear]).all(), case["prompt"]
        assert clear.sum() > 8, "the case says something"


def test_greedy_generation_of_float_weights(engine: Engine, golden: Callable[[str], Path]) -> None:
    """Equal text. llama.cpp went on past an end of generation, where we stop."""
    for case in facts(golden("stories260K_golden.json"))["cases"]:
        ends = [i for i, token in enumerate(case["greedy"]) if token in engine.tokenizer.eog]
        expected = case["greedy"][: ends[0]] if ends else case["greedy"]
        result = engine.generate(case["tokens"], temperature=0, max_tokens=len(case["greedy"]))
        assert result.tokens == expected
        assert result.finish_reason == ("stop" if ends else "length")
        text = engine.tokenizer.decode(result.tokens, skip_special=False, continued=True)
        assert text == case["greedy_text"] or (ends and case["greedy_text"].startswith(text))
        assert result.text == text.replace("<s>", ""), "control tokens are no text"


def test_greedy_generation_of_quantized_weights(smol: Engine, golden: Callable[[str], Path]) -> None:
    """Equal tokens up to the first close call; the conversation ends where llama.cpp's ends."""
    for case in facts(golden("smollm2_golden.json"))["cases"]:
        close = np.flatnonzero(margins(case) <= MARGIN).tolist()
        ends = [i for i, token in enumerate(case["greedy"]) if token in smol.tokenizer.eog]
        certain = min([*close, *ends, len(case["greedy"])])
        result = smol.generate(case["tokens"], temperature=0, max_tokens=certain + 1)
        assert result.tokens[:certain] == case["greedy"][:certain], case["prompt"]
        if ends and certain == ends[0]:
            assert result.finish_reason == "stop"
            assert case["greedy_text"].startswith(result.text) and result.tokens == case["greedy"][:certain]


def test_perplexity(subject: tuple[Engine, dict], golden: Callable[[str], Path]) -> None:
    engine, found = subject
    expected = found["perplexity"]
    text = golden("GPL-3.txt").read_text(encoding="utf-8")[:6000]
    tokens = engine.encode(text, add_special=False)[: expected["tokens"]]
    assert len(tokens) == 1024 and tokens[:16] == expected["first_ids"], "another text"
    loss = losses(engine.logits(tokens), tokens)
    assert np.exp(loss.mean()) == pytest.approx(expected["value"], rel=0.01)
    assert np.exp(loss[511:].mean()) == pytest.approx(expected["second_half"], rel=0.01)


@pytest.mark.parametrize(("kv_type", "worse"), [("q8_0", 0.005), ("q4_0", 0.06)])
def test_perplexity_over_a_quantized_cache(
    kv_type: str, worse: float, smol: Engine, smollm2: Path, golden: Callable[[str], Path]
) -> None:
    """What rounding keys and values costs, over the golden cases and what llama.cpp made of them."""
    cases = facts(golden("smollm2_golden.json"))["cases"]
    with llamina.load(smollm2, kv_type=kv_type) as rounded:
        pairs = []
        for case in cases:
            tokens = [*case["tokens"], *case["greedy"]]
            pairs.append([losses(engine.logits(tokens), tokens) for engine in (smol, rounded)])
    plain, lossy = (np.exp(np.concatenate(side).mean()) for side in zip(*pairs, strict=True))
    assert lossy / plain - 1 < worse
