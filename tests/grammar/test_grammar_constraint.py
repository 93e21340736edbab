"""Constraints: masks, forced tokens, ends, limits, and the other languages."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from grammar_facts import takes

from llamina import Tokenizer
from llamina.errors import InvalidGrammar
from llamina.grammar import source
from llamina.grammar.compiler import Compiler
from llamina.grammar.constraint import Constraint

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["name", "n"],
}


def start(compiler: Compiler, **constraint: Any) -> Constraint:
    found = source(**constraint)
    assert found is not None
    return compiler.constraint(found)


def allowed(constraint: Constraint, vocab: int) -> set[int]:
    logits = np.zeros(vocab, np.float32)
    constraint.apply(logits)
    return set(np.flatnonzero(logits == 0).tolist())


@pytest.mark.parametrize(
    ("constraint", "yes", "no"),
    [
        ({"regex": r"[0-9]{3}-[a-z]+"}, ["123-abc"], ["12-abc", "123-", "123-abC", "x123-a"]),
        ({"regex": r"(?i)yes|no\b"}, [], []),
        ({"regex": r".*"}, ["", "anything at all"], ["two\nlines"]),
        ({"choices": ["yes", "no", "yes and no"]}, ["yes", "no", "yes and no"], ["", "ye", "yes ", "maybe"]),
        ({"choices": ['"quoted"', "a/b\\c", "né\n"]}, ['"quoted"', "a/b\\c", "né\n"], ["quoted"]),
        ({"lark": 'start: "a" b+\nb: "b" | /[0-9]+/'}, ["ab", "a12b"], ["a", "b"]),
    ],
    ids=str,
)
def test_languages(compiler: Compiler, tokenizer: Tokenizer, constraint: Any, yes: list[str], no: list[str]) -> None:
    if not yes:
        with pytest.raises(InvalidGrammar):  # word boundaries look around
            takes(compiler, tokenizer, "", **constraint)
        return
    assert [takes(compiler, tokenizer, text, **constraint) for text in yes] == [True] * len(yes)
    assert [takes(compiler, tokenizer, text, **constraint) for text in no] == [False] * len(no)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"regex": "a(b"}, "regex cannot be followed: .*unclosed group"),
        ({"regex": 5}, "regex is 5: must be a string"),
        ({"grammar": b"root"}, "grammar is b'root': must be a string"),
        ({"lark": "start: nothing"}, "lark cannot be followed: .*unknown name"),
        ({"choices": []}, "choices is \\[\\]"),
        ({"choices": "yes"}, "choices is 'yes'"),
        ({"choices": ["yes", ""]}, "non-empty"),
        ({"regex": "a", "choices": ["b"]}, "regex and choices are given"),
        ({"regex": "a" * 2_000_000}, "at most 1048576"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refusals(compiler: Compiler, constraint: Any, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=message) as caught:
        start(compiler, **constraint)
    assert caught.value.param in constraint and "\n" not in str(caught.value)


def test_no_constraint() -> None:
    assert source() is None


@pytest.mark.parametrize("seed", range(4))
def test_the_mask_is_what_can_be_consumed(compiler: Compiler, tokenizer: Tokenizer, seed: int) -> None:
    """Each token, tried on its own, is taken exactly if the mask allows it."""
    rng, constraint = np.random.default_rng(seed), start(compiler, json_schema=SCHEMA)
    tried = rng.choice(tokenizer.vocab_size, 200, replace=False).tolist()
    for _ in range(12):
        found = allowed(constraint, tokenizer.vocab_size)
        for token in [*tried, *list(found)[:20]]:
            matcher = constraint._matcher.deep_copy()
            assert bool(matcher.validate_tokens([token])) == (token in found) or token in tokenizer.eog
        constraint.consume(int(rng.choice(sorted(found))))
        if constraint.done:
            break


@pytest.mark.parametrize("constraint", [{"json_schema": SCHEMA}, {"regex": "[0-9]*"}, {"grammar": 'root ::= "a"* "b"'}])
def test_tokens_are_accepted_exactly_if_the_mask_allows_them(
    compiler: Compiler, tokenizer: Tokenizer, constraint: dict[str, Any]
) -> None:
    """Ends of the answer as well; a token that is not accepted changes nothing."""
    rng, current = np.random.default_rng(0), start(compiler, **constraint)
    said: list[int] = []
    for _ in range(8):
        found = allowed(current, tokenizer.vocab_size)
        for token in {*rng.choice(tokenizer.vocab_size, 100).tolist(), *sorted(found)[:50], *tokenizer.eog, 10**6}:
            other = start(compiler, **constraint)
            other.restart(said)
            assert other.accept(token) == (token in found)
            if token not in found:
                assert allowed(other, tokenizer.vocab_size) == found
        said.append(int(rng.choice(sorted(found - tokenizer.eog))))
        assert current.accept(said[-1])
        if current.done:
            break


def test_a_thread_computes_slow_masks_that_are_needed(compiler: Compiler, tokenizer: Tokenizer) -> None:
    """The first one, beside the prefill; then none while masks are quick, or while tokens are accepted without."""
    constraint = start(compiler, regex="[a-z ]+")
    token = tokenizer.encode("x")[0]
    with ThreadPoolExecutor(1) as executor:
        constraint.begin(executor)
        assert constraint._future is not None
        allowed(constraint, tokenizer.vocab_size)
        constraint.consume(token)
        for seconds, needed, threaded in ((1e-6, True, False), (1.0, False, False), (1.0, True, True)):
            constraint._mask_seconds, constraint._mask_needed = seconds, needed
            constraint.begin(executor)
            assert (constraint._future is not None) == threaded
            assert constraint.accept(token) and constraint._future is None


def test_masks_in_another_thread(compiler: Compiler, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.grammar.constraint.WORTH_A_THREAD", 0.0)
    here, there = start(compiler, json_schema=SCHEMA), start(compiler, json_schema=SCHEMA)
    with ThreadPoolExecutor(1) as executor:
        for text in ("{", '"', "name", '":', ' "', "Ann", '",'):
            there.begin(executor)
            there.begin(executor)  # twice is once
            assert allowed(here, tokenizer.vocab_size) == allowed(there, tokenizer.vocab_size)
            for token in tokenizer.encode(text):
                here.consume(token), there.consume(token)


def test_forced_tokens(compiler: Compiler, tokenizer: Tokenizer) -> None:
    cities = [{"city": "Paris", "code": 75001}, {"city": "Parma", "code": 43121}]
    constraint = start(compiler, json_schema={"enum": cities, "x-guidance": {"whitespace_flexible": False}})
    forced = constraint.forced()
    assert tokenizer.decode(forced).startswith('{"city":')
    assert forced == tokenizer.encode(tokenizer.decode(forced)), "spelt as the tokenizer would"
    plain = start(compiler, regex="[a-z]+")
    assert plain.forced() == [] and plain.forced() == []


def test_forced_tokens_are_among_the_allowed(compiler: Compiler, tokenizer: Tokenizer) -> None:
    constraint = start(compiler, grammar='root ::= "Hello, world! " [0-9] " bottles of beer" | "Hi"')
    constraint.consume(tokenizer.encode("Hello")[0])
    slow = start(compiler, grammar='root ::= "Hello, world! " [0-9] " bottles of beer" | "Hi"')
    slow.consume(tokenizer.encode("Hello")[0])
    forced = constraint.forced()
    assert len(forced) > 2
    for token in forced:
        assert token in allowed(slow, tokenizer.vocab_size)
        slow.consume(token)
    assert allowed(constraint, tokenizer.vocab_size) == allowed(slow, tokenizer.vocab_size)


def test_the_end(compiler: Compiler, tokenizer: Tokenizer) -> None:
    open_end = start(compiler, regex="[0-9]+")
    open_end.consume(tokenizer.encode("7")[0])
    assert open_end.accepting and not open_end.done
    assert tokenizer.eog <= allowed(open_end, tokenizer.vocab_size)
    closed = start(compiler, choices=["7"])
    assert not tokenizer.eog & allowed(closed, tokenizer.vocab_size)
    closed.consume(tokenizer.encode("7")[0])
    assert closed.accepting and closed.done


def test_restart(compiler: Compiler, tokenizer: Tokenizer) -> None:
    constraint = start(compiler, choices=["red", "green"])
    tokens = [tokenizer.encode(letter)[0] for letter in "gre"]
    for token in tokens:
        constraint.consume(token)
    expected = allowed(constraint, tokenizer.vocab_size)
    constraint.restart(tokens[:1])
    assert allowed(constraint, tokenizer.vocab_size) != expected
    constraint.restart(tokens)
    assert allowed(constraint, tokenizer.vocab_size) == expected
    with pytest.raises(InvalidGrammar):
        constraint.restart([tokenizer.encode("x")[0]])
    assert allowed(constraint, tokenizer.vocab_size) == expected, "as if nothing had happened"
    with pytest.raises(InvalidGrammar, match="cannot be followed"):
        constraint.consume(tokenizer.encode("x")[0])


def test_the_same_text_is_compiled_once(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(compiler, regex="once|twice")
    monkeypatch.setattr(compiler, "_compile", lambda source: pytest.fail("compiled again"))
    assert start(compiler, regex="once|twice") is not one


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "(a|b|ab|ba|aba)*c{1,90000}(x{1,9000}y){1,9000}"},
        {"grammar": 'root ::= ("a" | "b" | "ab"){0,1000000} [^a]{0,1000000} "c"'},
        {"json_schema": {"type": "array", "items": {"type": "string", "maxLength": 100000}, "maxItems": 100000}},
        {"choices": [f"choice number {i}" for i in range(20000)]},
        {"grammar": "root ::= " + " | ".join(f'"{i}" root "{i}"' for i in range(400))},
    ],
    ids=lambda value: str(value)[:40],
)
def test_costs_are_bounded(compiler: Compiler, tokenizer: Tokenizer, constraint: Any) -> None:
    """It works or is refused, in a time that is not worth mentioning; and so does its first mask."""
    begun = time.perf_counter()
    try:
        found = start(compiler, **constraint)
        allowed(found, tokenizer.vocab_size)
    except InvalidGrammar:
        pass
    assert time.perf_counter() - begun < 60  # the tests' machine may be busy; without limits it would not end


def test_a_model_with_more_rows_than_tokens(tokenizer: Tokenizer) -> None:
    """Rows of the output matrix that are no tokens are never allowed."""
    padded = Compiler(tokenizer, tokenizer.vocab_size + 100)
    assert max(allowed(start(padded, regex=".*"), tokenizer.vocab_size + 100)) < tokenizer.vocab_size


def test_a_vocabulary_without_an_end(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "eog", frozenset())
    endless = Compiler(tokenizer, tokenizer.vocab_size)
    constraint = start(endless, choices=["yes"])
    assert allowed(constraint, tokenizer.vocab_size)
    for token in tokenizer.encode("yes"):
        constraint.consume(token)
    assert constraint.done
