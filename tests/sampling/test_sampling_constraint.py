"""Sampling under a constraint: greedy sampling asks for a mask only where the likeliest token is not allowed."""

from typing import Any

import numpy as np
import pytest
from sampling_facts import neutral

from llamina.errors import InvalidSampling
from llamina.sampling import Sampler

VOCAB = 50


class Allowed:
    """A constraint that allows some tokens, and counts the masks."""

    done = False

    def __init__(self, tokens: set[int]) -> None:
        self.tokens = tokens
        self.masks = 0
        self.consumed: list[int] = []

    def apply(self, logits: Any) -> None:
        self.masks += 1
        logits[[token for token in range(VOCAB) if token not in self.tokens]] = -np.inf

    def accept(self, token: int) -> bool:
        if token not in self.tokens:
            return False
        self.consume(token)
        return True

    def consume(self, token: int) -> None:
        assert token in self.tokens
        self.consumed.append(token)


def sampled(logits: Any, tokens: set[int], history: list[int], **options: Any) -> tuple[int, Allowed]:
    constraint = Allowed(tokens)
    sampler = Sampler(neutral(**{"seed": 0, **options}), VOCAB, constraint=constraint)  # type: ignore[arg-type]
    token = sampler.sample(np.array(logits, np.float32), history)
    assert constraint.consumed == [token]
    return token, constraint


PENALTIES = {"repeat_penalty": 1.5, "frequency_penalty": 0.3, "presence_penalty": 0.2, "repeat_last_n": -1}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "penalties": {"temperature": 0, **PENALTIES},
    "dry": {"temperature": 0, "dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1},
    "top_k 1": {"top_k": 1},
    "xtc": {"temperature": 0, "xtc_probability": 1.0, "xtc_threshold": 0.05},  # drops the likeliest: masks come first
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", range(20))
def test_a_token_is_that_of_masked_logits(options: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, VOCAB).astype(np.float32)  # with ties
    history = rng.integers(0, VOCAB, 30).tolist()
    tokens = set(rng.choice(VOCAB, rng.integers(1, VOCAB), replace=False).tolist())
    masked = logits.copy()
    Allowed(tokens).apply(masked)
    expected = Sampler(neutral(**{"seed": 0, **options}), VOCAB).sample(masked, history)
    assert sampled(logits, tokens, history, **options)[0] == expected


def test_masks_only_where_they_are_needed() -> None:
    logits = np.arange(VOCAB)
    token, constraint = sampled(logits, {3, VOCAB - 1}, [], temperature=0)
    assert (token, constraint.masks) == (VOCAB - 1, 0)
    token, constraint = sampled(logits, {3, 7}, [], temperature=0)
    assert (token, constraint.masks) == (7, 1)
    assert sampled(logits, {3, VOCAB - 1}, [], temperature=1.0)[1].masks == 1


def test_damaged_logits_are_told_as_ever() -> None:
    logits = np.zeros(VOCAB)
    logits[5] = np.inf
    assert sampled(logits, {1}, [], temperature=0)[0] == 1, "the grammar does not allow it"
    with pytest.raises(InvalidSampling, match="largest logit is inf"):
        sampled(logits, {1, 5}, [], temperature=0)
    with pytest.raises(InvalidSampling, match="no token is left"):
        sampled(np.full(VOCAB, -np.inf), {1}, [], temperature=0)
