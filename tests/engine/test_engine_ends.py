"""What ends an answer beside the model itself: tokens that are named, and not before so many; how reasoning ends."""

import json
from typing import Any

import pytest

from llamina import Engine
from llamina.engine.request import ReasoningLimit, Request
from llamina.engine.sequence import Sequence
from llamina.engine.snapshot.format import read_sequence, write_sequence
from llamina.errors import RequestError
from llamina.tokenizer import ChatTemplate

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
ASK = [{"role": "user", "content": "What is the capital of Japan?"}]
OPENED = "{% for m in messages %}{{ m.content }}\n{% endfor %}<think>"  # the prompt opens the reasoning


def test_stop_tokens(engine: Engine) -> None:
    free = engine.generate(PROMPT, **GREEDY)
    end = free.tokens[4]
    ended = engine.generate(PROMPT, stop_tokens=[end], **GREEDY)
    assert ended.tokens == free.tokens[: free.tokens.index(end)] and ended.finish_reason == "stop"
    assert free.text.startswith(ended.text) and ended.text != free.text
    both = engine.generate(PROMPT, stop_tokens=[end], ignore_eos=True, **GREEDY)
    assert both.tokens == ended.tokens


def test_nothing_ends_an_answer_before_min_tokens(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    free = engine.generate(PROMPT, **GREEDY)
    end, at = free.tokens[2], 2
    monkeypatch.setattr(engine.tokenizer, "eog", frozenset({end}))
    assert len(engine.generate(PROMPT, **GREEDY).tokens) == free.tokens.index(end) == at
    for n in (at, at + 1, 8):
        for ways in ({}, {"seed": 3, "temperature": 1.5}, {"logprobs": 1}):
            longer = engine.generate(PROMPT, min_tokens=n, **GREEDY | ways)
            assert len(longer.tokens) >= n and end not in longer.tokens[:n]
    stop = free.text[3:8]
    assert engine.generate(PROMPT, stop=stop, ignore_eos=True, **GREEDY).text == free.text[:3]
    later = engine.generate(PROMPT, stop=stop, ignore_eos=True, min_tokens=12, **GREEDY)
    assert later.text == free.text and later.finish_reason == "length"


def test_a_stop_string_can_be_part_of_the_text(engine: Engine) -> None:
    free = engine.generate(PROMPT, **GREEDY)
    stop = free.text[5:9]
    shown = engine.generate(PROMPT, stop=[stop], include_stop=True, **GREEDY)
    assert shown.text == free.text[: free.text.index(stop) + len(stop)] and shown.finish_reason == "stop"
    assert engine.generate(PROMPT, stop=[stop], **GREEDY).text + stop == shown.text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"min_tokens": 2, "regex": "a+"}, "min_tokens"),
        ({"stop_tokens": 7}, "stop_tokens"),
        ({"stop_tokens": ["a"]}, "stop_tokens"),
        ({"stop_tokens": [10**6]}, "stop_tokens"),
        ({"include_stop": 1}, "include_stop"),
        ({"stop_token_ids": [1]}, "stop_tokens"),
    ],
)
def test_mistakes_are_named(engine: Engine, options: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        engine.generate(PROMPT, **options)


def test_a_snapshot_has_all_of_it() -> None:
    limit = ReasoningLimit(5, "<think>", ("</think>",), (1, 2))
    asked = Request([1], min_tokens=2, max_tokens=9, stop_tokens=[3], include_stop=True, reasoning_limit=limit)
    found = read_sequence(json.loads(json.dumps(write_sequence(Sequence(asked))))).request
    for name in ("min_tokens", "max_tokens", "stop_tokens", "include_stop"):
        assert getattr(found, name) == getattr(asked, name)
    assert found.reasoning_limit is not None and found.reasoning_limit.tokens == 5
    assert list(found.reasoning_limit.closing) == [1, 2] and list(found.reasoning_limit.ends) == ["</think>"]


@pytest.fixture
def thinker(smol: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A model whose prompt opens the reasoning, which it never ends by itself."""
    template = ChatTemplate(OPENED)
    monkeypatch.setattr(smol.tokenizer, "chat_template_for", lambda **_: template)
    return smol


def test_reasoning_ends_at_its_budget(thinker: Engine) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    endless = thinker.chat(ASK, **options)
    assert endless.reasoning and not endless.text
    for more in ({}, {"logprobs": 1}, {"speculate": 3}):
        cut = thinker.chat(ASK, reasoning_budget=10, **options, **more)
        assert cut.reasoning and endless.reasoning.startswith(cut.reasoning) and cut.text
        assert cut.tokens[:10] == endless.tokens[:10] and len(cut.tokens) == 40
        if cut.logprobs is not None:
            closing = [at for at, entry in enumerate(cut.logprobs) if entry is None]
            assert closing and closing[0] == 10 and len(cut.logprobs) == 40
    at_once = thinker.chat(ASK, reasoning_budget=0, **options)
    assert not at_once.reasoning and at_once.text
    assert thinker.chat(ASK, reasoning_budget=40, **options).tokens == endless.tokens


def test_a_budget_is_for_reasoning_alone(smol: Engine, thinker: Engine) -> None:
    """An answer that follows a grammar, or that does not reason, is as it would be."""
    yes = thinker.chat(ASK, reasoning_budget=0, reasoning=("<r>", "</r>"), temperature=0, max_tokens=12)
    assert yes.tokens == thinker.chat(ASK, reasoning=("<r>", "</r>"), temperature=0, max_tokens=12).tokens
    chosen = thinker.chat(ASK, reasoning_budget=1, choices=["Tokyo or Kyoto"], temperature=0)
    assert chosen.reasoning == "Tokyo or Kyoto"
    for wrong in ({"reasoning_budget": -1}, {"reasoning_budget": 3, "reasoning": False}):
        with pytest.raises(RequestError, match="reasoning_budget"):
            smol.chat(ASK, **wrong)  # type: ignore[arg-type]
