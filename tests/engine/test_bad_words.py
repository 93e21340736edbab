"""Words that may not be generated, of one token and of several."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request
from llamina.engine.sequence import Sequence
from llamina.engine.snapshot.format import read_sequence, write_sequence
from llamina.errors import RequestError
from llamina.sampling import Sampler, Sampling, word_tokens

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 0, "repeat_penalty": 1.2},
    {"mirostat": 2, "temperature": 1.0, "seed": 5},
    {"speculate": "off"},
    {"speculate": 4},
    {"logprobs": 2},
]


def says(engine: Engine, tokens: list[int], word: str) -> bool:
    """Whether the tokens of a word are among these. Other tokens may write it as part of another word."""
    spellings = word_tokens([word], engine.tokenizer)
    return any(tuple(tokens[i : i + len(each)]) == each for each in spellings for i in range(len(tokens)))


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_a_word_of_several_tokens_is_not_said(engine: Engine, ways: dict[str, Any]) -> None:
    free = engine.generate(PROMPT, **GREEDY | ways)
    assert isinstance(free.text, str)
    words = free.text.split()
    word = " ".join(words[3:6])  # its parts alone are said all the same
    assert min(map(len, word_tokens([word], engine.tokenizer))) > 2
    kept = engine.generate(PROMPT, bad_words=[word], **GREEDY | ways)
    assert says(engine, free.tokens, word) and not says(engine, kept.tokens, word)
    assert kept.text.split()[:4] == words[:4]


def test_a_word_of_one_token_is_not_said(engine: Engine) -> None:
    free = engine.generate(PROMPT, **GREEDY)
    alone = next(t for t in free.tokens if engine.tokenizer.decode([t], continued=True).strip().isalpha())
    word = engine.tokenizer.decode([alone], continued=True).strip()
    assert (alone,) in word_tokens([word], engine.tokenizer)
    for given in (word, [word], [f" {word}"], (word, "nobody says this")):
        assert alone not in engine.generate(PROMPT, bad_words=given, **GREEDY).tokens


def test_what_the_prompt_says_begins_no_word(engine: Engine) -> None:
    """A word is what the model says: the end of a sentence may repeat what is asked of."""
    free = engine.generate(PROMPT, **GREEDY)
    word = engine.tokenizer.decode(free.tokens[:3], continued=True)
    assert tuple(free.tokens[:3]) in word_tokens([word], engine.tokenizer)
    asked = [*engine.encode(PROMPT), *free.tokens[:2]]
    assert engine.generate(asked, bad_words=[word], **GREEDY).tokens[0] == free.tokens[2]
    assert engine.generate(PROMPT, bad_words=[word], **GREEDY).tokens[:3] != free.tokens[:3]


def test_the_ends_of_words_that_begin_alike() -> None:
    sampler = Sampler(Sampling(temperature=0), 6, words=[(1, 2, 3), (1, 2, 4), (5,)], words_from=2)

    def chosen(history: list[int]) -> int:
        return sampler.sample(np.arange(6, dtype=np.float32), history)

    assert chosen([0, 0, 1]) == 4 and chosen([0, 0, 1, 2]) == 2
    assert chosen([0, 1, 2]) == 4  # 1 is the prompt's
    assert "bad_words" in sampler.handover.stages
    assert "bad_words" not in Sampler(Sampling(temperature=0), 6, words=[(5,)]).handover.stages


def test_bad_words_hold_in_a_grammar(engine: Engine) -> None:
    """Also where it leaves no choice but that of the tokens."""
    text = "a big cat"
    usual = engine.generate(PROMPT, choices=[text], temperature=0)
    other = engine.generate(PROMPT, choices=[text], temperature=0, bad_words=[text])
    assert usual.text == other.text == text
    assert says(engine, usual.tokens, text) and not says(engine, other.tokens, text)


def test_bad_words_hold_for_a_draft_model_and_in_a_snapshot(stories: Path) -> None:
    with llamina.load(stories, threads=1, draft=stories) as engine:
        free = engine.generate(PROMPT, **GREEDY)
        word = " ".join(str(free.text).split()[3:6])
        kept = engine.generate(PROMPT, bad_words=[word], **GREEDY)
        assert word not in kept.text
        assert kept.tokens == engine.generate(PROMPT, bad_words=[word], speculate="off", **GREEDY).tokens
    found = read_sequence(write_sequence(Sequence(Request([1], bad_words=["a", "b c"])))).request
    assert list(found.bad_words) == ["a", "b c"]


@pytest.mark.parametrize("wrong", [[""], ["a", "  "], [1], 5, None], ids=str)
def test_what_is_no_word(engine: Engine, wrong: Any) -> None:
    with pytest.raises(RequestError, match="bad_words") as caught:
        engine.generate(PROMPT, bad_words=wrong)
    assert caught.value.param == "bad_words"
