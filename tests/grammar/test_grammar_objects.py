"""Grammars as objects: what they accept, and requests that share one."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import llamina
from llamina import Grammar, Request
from llamina.errors import InvalidGrammar

DATE = r"\d{4}-\d{2}-\d{2}"
LIST = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]+ | root\n'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("grammar", "whole", "begun", "never"),
    [
        (Grammar.regex(DATE), ["2024-02-30"], ["", "2024-"], ["20240", "2024-02-301", "x"]),
        (Grammar.gbnf(LIST), ["[1]", "[1,[2,33]]"], ["[", "[1,"], ["]", "[,", "[1]]"]),
        (Grammar.choices(["yes", "no", "nöö"]), ["yes", "no", "nöö"], ["y", "n"], ["yess", "Yes", "x"]),
        (Grammar.json_schema(SCHEMA), ['{"n": 3}', '{"n":-12}'], ["{", '{"n":'], ['{"m"', '{"n": 1, "', "[]"]),
        (Grammar.json_schema(), ["{}", '{"a": [1, {"b": null}]}'], ['{"a"'], ["}"]),
        (Grammar.lark('start: "a" /b+/'), ["ab", "abbb"], ["a"], ["b", "aba"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Grammar) else None,
)
def test_what_is_accepted(grammar: Grammar, whole: list[str], begun: list[str], never: list[str]) -> None:
    for text in whole:
        assert grammar.accepts(text) and grammar.begins(text), text
    for text in begun:
        assert grammar.begins(text) and not grammar.accepts(text), text
    for text in never:
        assert not grammar.begins(text) and not grammar.accepts(text), text


def test_a_vocabulary_has_its_own_tokens(talker: Path) -> None:
    """A grammar that names a token needs one that has it."""
    grammar = Grammar.gbnf("root ::= <s> [a-z]+")
    with pytest.raises(InvalidGrammar):
        grammar.accepts("<s>abc")
    tokenizer = llamina.Tokenizer.from_file(talker)
    assert grammar.accepts("<s>abc", tokenizer) and not grammar.accepts("abc", tokenizer)
    assert Grammar.regex(DATE).accepts("2024-02-30", tokenizer)


@pytest.mark.parametrize(
    ("grammar", "option"),
    [
        (Grammar.gbnf(LIST), {"grammar": LIST}),
        (Grammar.regex(DATE), {"regex": DATE}),
        (Grammar.choices(["yes", "no"]), {"choices": ["yes", "no"]}),
        (Grammar.json_schema(SCHEMA), {"json_schema": SCHEMA}),
    ],
    ids=lambda value: value.kind if isinstance(value, Grammar) else "",
)
def test_a_request_has_the_same_by_either(grammar: Grammar, option: dict[str, Any], stories_engine: Any) -> None:
    assert Request([1], grammar=grammar).source == Request([1], **option).source == grammar.source
    answers = [
        stories_engine.generate("Once", max_tokens=30, seed=3, **given).text for given in ({"grammar": grammar}, option)
    ]
    assert answers[0] == answers[1] and grammar.begins(answers[0])


@pytest.fixture(scope="module")
def stories_engine(golden: Any) -> Any:
    with llamina.load(golden("stories260K.gguf"), threads=1, context=128) as engine:
        yield engine


def test_one_for_many_requests(stories_engine: Any) -> None:
    """It is compiled once: the engine finds it by its text."""
    grammar = Grammar.regex(r"[a-z]{3,5}\.")
    for answer in stories_engine.generate(["One", "Two", "Three"], grammar=grammar, max_tokens=20):
        assert grammar.accepts(answer.text)
    compiled = stories_engine.runner.samplers._compiler._compiled
    assert list(compiled).count(grammar.source) == 1


def test_a_snapshot_keeps_it(stories_engine: Any) -> None:
    sequence = stories_engine.submit(Request([1, 5], grammar=Grammar.choices(["a b c", "a b d"]), max_tokens=9))
    resumed = stories_engine.resume(stories_engine.snapshot(sequence))
    stories_engine.cancel(sequence)
    assert stories_engine.follow(resumed).result().text in ("a b c", "a b d")


def test_equal_and_pickled() -> None:
    grammar = Grammar.choices(["a", "b"])
    assert pickle.loads(pickle.dumps(grammar)) == grammar == Grammar.choices(("a", "b"))
    assert len({grammar, Grammar.choices(["a", "b"])}) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grammar.regex(7),  # type: ignore[arg-type]
        lambda: Grammar.choices([]),
        lambda: Grammar.json_schema("{"),
        lambda: Grammar.json_schema(None),  # type: ignore[arg-type]
        lambda: Grammar.gbnf("root ::= (").accepts(""),
        lambda: Grammar.regex("(").accepts(""),
        lambda: Request([1], grammar=Grammar.regex("a"), regex="b"),
        lambda: Request([1], grammar=Grammar.regex("a"), choices=["b"]),
    ],
)
def test_refusals(make: Any) -> None:
    with pytest.raises(InvalidGrammar):
        make()
