"""Answers that follow a grammar, through the public API."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import InvalidGrammar, InvalidSampling, RequestError

PROMPT = "Once upon a time"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "age": {"type": "integer", "maximum": 120, "minimum": 0},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 3},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}
CONSTRAINTS: list[tuple[dict[str, Any], str]] = [
    ({"grammar": 'root ::= "The answer is " [0-9]{2,4} "."'}, r"The answer is [0-9]{2,4}\."),
    ({"grammar": 'root ::= "(" root ")" | [a-c]{1,3}'}, r"\(*[a-c]{1,3}\)*"),
    ({"regex": r"[A-Z][a-z]{3,8}, [0-9]{4}"}, r"[A-Z][a-z]{3,8}, [0-9]{4}"),
    ({"choices": ["a cat", "a dog", "two dogs"]}, "a cat|a dog|two dogs"),
    ({"lark": 'start: WORD ("-" WORD)~2\nWORD: /[a-z]{2,4}/'}, r"[a-z]{2,4}(-[a-z]{2,4}){2}"),
]


@pytest.mark.parametrize(("constraint", "pattern"), CONSTRAINTS, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 1, "temperature": 3.0, "top_k": 0, "top_p": 1.0}])
def test_answers_follow(engine: Engine, constraint: dict[str, Any], pattern: str, options: dict[str, Any]) -> None:
    for n in range(4):
        result = engine.generate(PROMPT, max_tokens=200, **constraint, **options | {"repeat_penalty": 1 + n / 5})
        assert re.fullmatch(pattern, result.text) and result.finish_reason == "stop", result.text
        assert engine.tokenizer.decode(result.tokens, continued=True) == result.text


@pytest.mark.parametrize("seed", range(5))
def test_json(engine: Engine, seed: int) -> None:
    result = engine.generate(PROMPT, json_schema=PERSON, seed=seed, temperature=1.5, max_tokens=300)
    jsonschema.validate(json.loads(result.text), PERSON)
    assert result.finish_reason == "stop"


def test_a_real_model(smol: Engine) -> None:
    messages = [{"role": "user", "content": "Describe Ann, who is 30 and has two cats, as JSON."}]
    result = smol.chat(messages, json_schema=PERSON, temperature=0, max_tokens=100)
    jsonschema.validate(json.loads(result.text), PERSON)
    colour = smol.chat(
        [{"role": "user", "content": "Is snow white or black?"}], choices=["white", "black"], temperature=0
    )
    assert colour.text in ("white", "black") and colour.finish_reason == "stop"


def test_stream_is_generate(engine: Engine) -> None:
    options: dict[str, Any] = {"json_schema": PERSON, "seed": 3, "temperature": 1.2, "max_tokens": 300}
    whole = engine.generate(PROMPT, **options)
    assert "".join(map(str, engine.stream(PROMPT, **options))) == whole.text


def test_company_and_chunks_change_nothing(stories: Path) -> None:
    """Alone, with others, preempted, in small steps and on two threads: the same answer."""
    jobs = [
        {"json_schema": PERSON, "seed": 1, "temperature": 1.3},
        {"grammar": 'root ::= ("x" [0-9]+ " ")+ "end"', "seed": 2, "temperature": 2.0},
        {"seed": 3},
        {"choices": ["one two three four five six seven"], "seed": 4},
    ]
    with llamina.load(stories, threads=1, context=256) as engine:
        alone = [engine.generate(PROMPT, max_tokens=60, **job).tokens for job in jobs]
    for options in ({"step_tokens": 5}, {"cache_tokens": 160}, {"threads": 2}):
        with llamina.load(stories, context=256, **{"threads": 1, **options}) as engine:
            streams = [engine.stream(PROMPT, max_tokens=60, **job) for job in jobs]
            assert [stream.result().tokens for stream in streams] == alone


def test_forced_tokens_come_at_once(engine: Engine) -> None:
    """What the grammar leaves no choice about is not sampled, and computed in one step."""
    text = " there was a very long sentence that nobody could change."
    sequence = engine.submit(Request(engine.encode(PROMPT), grammar=f'root ::= ("A" | "B") "{text}"'))
    deltas = []
    while sequence.finish_reason is None:
        deltas += engine.step()
    assert len(sequence.generated) > 8 and len([d for d in deltas if d.tokens]) <= 4
    assert "".join(d.text for d in deltas)[1:] == text
    assert [t for d in deltas for t in d.tokens] == sequence.generated


def test_forced_tokens_respect_limits(engine: Engine) -> None:
    result = engine.generate(PROMPT, choices=["a very long sentence that nobody could change"], max_tokens=5)
    assert len(result.tokens) == 5 and result.finish_reason == "length"
    tiny = llamina.load(engine.runner.file, threads=1, context=24)
    with tiny:
        tokens = tiny.encode(PROMPT)
        cut = tiny.generate(tokens, choices=["a very long sentence that nobody could change, ever"], max_tokens=None)
        assert cut.finish_reason == "length" and len(tokens) + len(cut.tokens) == 24


def test_stop_strings(engine: Engine) -> None:
    result = engine.generate(PROMPT, choices=["red and green and blue"], stop=[" and blue"])
    assert result.text == "red and green" and result.finish_reason == "stop"


def test_bans_hold(engine: Engine) -> None:
    banned = [token for token in range(engine.runner.plan.vocab) if b"a" in engine.tokenizer.token_bytes(token)]
    result = engine.generate(PROMPT, choices=["a cat", "one dog"], banned_tokens=banned)
    assert result.text == "one dog"
    with pytest.raises(InvalidSampling, match="no token is left"):
        engine.generate(PROMPT, choices=["a cat"], banned_tokens=banned)


def test_hooks_see_the_model_and_grammars_have_the_last_word(engine: Engine) -> None:
    def hook(tokens: object, logits: np.ndarray) -> np.ndarray:
        return np.zeros_like(logits)

    assert engine.generate(PROMPT, choices=["yes"], logits_processor=hook).text == "yes"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"grammar": "root ::= x"}, "grammar"),
        ({"json_schema": {"type": "strin"}}, "json_schema"),
        ({"regex": "("}, "regex"),
        ({"choices": []}, "choices"),
        ({"lark": "nothing"}, "lark"),
        ({"regex": "a", "lark": "b"}, "lark"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos"),
    ],
    ids=str,
)
def test_mistakes_are_told_at_submission(engine: Engine, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.stream(PROMPT, **options)
    assert caught.value.param == param and not engine.core.waiting


def test_forks_and_rewinds(engine: Engine) -> None:
    grammar = 'root ::= [a-f]{6} "-" [0-9]{6}'
    first = engine.submit(Request(engine.encode(PROMPT), Sampling(seed=1, temperature=2.0), grammar=grammar))
    while len(first.generated) < 3:
        engine.step()
    second = engine.fork(first, Sampling(seed=2, temperature=2.0))
    third = engine.fork(first)
    while engine.core.running or engine.core.waiting:
        engine.step()
    texts = [sequence.text for sequence in (first, second, third)]
    assert all(re.fullmatch("[a-f]{6}-[0-9]{6}", text) for text in texts)
    assert texts[0] == texts[2] and texts[0][:2] == texts[1][:2]
    last = len(engine.tokenizer.decode(first.generated[-2:], continued=True))
    with pytest.raises(InvalidGrammar):
        engine.rewind(first, 2, [engine.tokenizer.encode("z", continued=True)[0]])
    assert first.text == texts[0], "refused, and nothing happened"
    engine.rewind(first, 2)
    while engine.core.running or engine.core.waiting:
        engine.step()
    again = first.text
    assert again[:-last] == texts[0][:-last] and re.fullmatch("[a-f]{6}-[0-9]{6}", again)


def test_snapshots(engine: Engine) -> None:
    options: dict[str, Any] = {"json_schema": PERSON, "seed": 5, "temperature": 1.4, "max_tokens": 200}
    whole = engine.generate(PROMPT, **options).text
    stream = engine.stream(PROMPT, **options)
    while len(stream.sequence.generated) < 6:
        engine.step()
    data = engine.snapshot(stream.sequence)
    stream.close()
    resumed = engine.resume(data)
    while resumed.finish_reason is None:
        engine.step()
    assert resumed.text == whole
