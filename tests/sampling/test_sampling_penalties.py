"""Penalties for what was said, and for saying it again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_facts import candidates, distribution, logs, neutral, pick

from llamina import Tokenizer
from llamina.sampling import BreakerTable
from llamina.sampling.penalties import Dry, penalize

LOGITS = np.array([2, 1, -1], np.float32)


@pytest.mark.parametrize(
    ("history", "n", "expected"),
    [
        ((), 64, [2.0, 1.0, -1.0]),
        ((0,), 64, [1.0, 1.0, -1.0]),
        ((2,), 64, [2.0, 1.0, -2.0]),
        ((0, 1, 2), -1, [1.0, 0.5, -2.0]),
        ((0, 0, 0), 64, [1.0, 1.0, -1.0]),  # once, however often it occurred
        ((0, 1, 2), 1, [2.0, 1.0, -2.0]),
        ((0, 1, 2), 2, [2.0, 0.5, -2.0]),
        ((0, 1, 2), 99, [1.0, 0.5, -2.0]),
    ],
)
def test_repeat_penalty(history: tuple[int, ...], n: int, expected: list[float]) -> None:
    """Positive logits are divided by the penalty, negative ones multiplied."""
    c = candidates(LOGITS.copy(), history)
    penalize(c, neutral(repeat_penalty=2.0, repeat_last_n=n))
    assert c.logits.tolist() == expected


def test_a_window_of_nothing() -> None:
    assert distribution(LOGITS, (0, 1, 2), repeat_penalty=2.0, repeat_last_n=0) == distribution(LOGITS)


@pytest.mark.parametrize(
    ("frequency", "presence", "expected"),
    [(0.5, 0.0, [0.5, 0.5, -1.0]), (0.0, 0.5, [1.5, 0.5, -1.0]), (-1.0, 0.25, [4.75, 1.75, -1.0])],
)
def test_counts(frequency: float, presence: float, expected: list[float]) -> None:
    c = candidates(LOGITS.copy(), (0, 1, 0, 0))
    penalize(c, neutral(frequency_penalty=frequency, presence_penalty=presence))
    assert c.logits.tolist() == expected


def test_penalties_act_on_greedy() -> None:
    assert pick([2.0, 1.9, 0.0], (0,), temperature=0, repeat_penalty=1.1) == 1
    assert pick([2.0, 1.9, 0.0], (), temperature=0, repeat_penalty=1.1) == 0
    assert pick([2.0, 1.9, 0.0], (0,), temperature=0, presence_penalty=0.2) == 1
    assert pick([2.0, 1.9, 0.0], (0, 1, 2, 0, 1), temperature=0, dry_multiplier=1.0) == 0
    assert pick([1.8, 1.9, 2.0], (0, 1, 2, 0, 1), temperature=0, dry_multiplier=1.0) == 1


def test_penalties_after_a_cut() -> None:
    """In another order, only what is left is penalised."""
    options: dict[str, Any] = {"samplers": ["top_k", "penalties", "dry", "temperature"], "top_k": 2}
    found = distribution(logs((0.4, 0.3, 0.2, 0.1)), (0, 2, 3), presence_penalty=5.0, **options)
    assert set(found) == {0, 1} and found[1] > 0.9
    found = distribution(logs((0.4, 0.3, 0.2, 0.1)), (0, 2, 3, 0, 2, 3), dry_multiplier=9.0, **options)
    assert set(found) == {0, 1} and found[1] > 0.9


def lengths(history: Sequence[int], allowed: int, last_n: int, breakers: set[int]) -> dict[int, int]:
    """Token → the longest repetition it would prolong, by looking at every place."""
    window = list(history if last_n < 0 else history[max(0, len(history) - last_n) :])
    after = next((i for i, token in enumerate(reversed(window)) if token in breakers), len(window))
    found: dict[int, int] = {}
    for i in range(1, len(window)):  # the token at i came after window[:i]
        n = 0
        while n < min(i, after) and window[i - 1 - n] == window[-1 - n]:
            n += 1
        if n >= allowed and window[i] not in breakers:
            found[window[i]] = max(found.get(window[i], 0), n)
    return found


@settings(max_examples=300, deadline=None)
@given(
    history=st.lists(st.integers(0, 4), max_size=40),
    allowed=st.integers(1, 4),
    last_n=st.integers(-1, 45).filter(bool),
    breakers=st.sets(st.integers(0, 4), max_size=2),
)
def test_dry_by_brute_force(history: list[int], allowed: int, last_n: int, breakers: set[int]) -> None:
    params = neutral(dry_multiplier=0.5, dry_base=1.5, dry_allowed_length=allowed, dry_penalty_last_n=last_n)
    c = candidates(np.zeros(5, np.float32), history)
    Dry(params, {token: [[]] for token in breakers})(c)
    window = len(history) if last_n < 0 else min(last_n, len(history))
    expected = lengths(history, allowed, last_n, breakers) if window > allowed else {}
    found = {token: -float(c.logits[token]) for token in range(5) if c.logits[token]}
    assert found == pytest.approx({token: 0.5 * 1.5 ** (n - allowed) for token, n in expected.items()})


def test_dry_of_a_long_repetition_stays_finite() -> None:
    c = candidates(np.zeros(3, np.float32), [1] * 3000)
    Dry(neutral(dry_multiplier=1.0, dry_penalty_last_n=-1), {})(c)
    assert np.isfinite(c.logits).all() and c.logits[1] < -1e30


def test_breakers_of_several_tokens() -> None:
    """7 then 8 breaks; 7 alone does not."""
    options: dict[str, Any] = {"dry_multiplier": 1.0}
    flat = np.zeros(9, np.float32)
    assert distribution(flat, (0, 1, 2, 7, 8, 0, 1), {7: [[8]]}, **options)[2] < 0.1  # two since the breaker: enough
    assert distribution(flat, (0, 1, 2, 0, 7, 8, 1), {7: [[8]]}, **options)[2] == pytest.approx(1 / 9)
    assert distribution(flat, (0, 7, 1, 2, 0, 7, 1), {7: [[8]]}, **options)[2] < 0.1


def test_breakers_in_a_vocabulary(golden: Any) -> None:
    tokenizer = Tokenizer.from_gguf(golden("vocab/ggml-vocab-gpt-2.gguf"))
    table = BreakerTable(tokenizer)
    newline = table(["\n"])
    assert all(b"\n" in tokenizer.token_bytes(token) and tails == [[]] for token, tails in newline.items())
    assert set(newline) == {t for t in range(tokenizer.vocab_size) if b"\n" in tokenizer.token_bytes(t)}
    word = table(["user:"])
    for token, tails in word.items():
        for tail in tails:
            spelt = tokenizer.token_bytes(token) + b"".join(map(tokenizer.token_bytes, tail))
            assert b"user:" in spelt
    assert [tokenizer.token_bytes(t) for t in tokenizer.encode("user")] == [b"user"]
    assert tokenizer.encode(":") in word[tokenizer.encode("user")[0]]
    both = table(["\n", "user:"])
    assert set(both) == set(newline) | set(word)
    assert table(["\n"]) == newline, "asking for more does not change what was found"
