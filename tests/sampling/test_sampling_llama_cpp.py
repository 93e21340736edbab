"""The tables of llama.cpp's own test of its samplers, to 1e-5."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sampling_facts import distribution, logs

from llamina import Sampling
from llamina.errors import InvalidSampling

FOUR = (0.1, 0.2, 0.3, 0.4)
DOWN = (0.4, 0.3, 0.2, 0.1)


def check(found: dict[int, float], expected: Sequence[float]) -> None:
    """Probabilities in llama.cpp's order: those that are left, by token, or likeliest first."""
    assert len(found) == len(expected)
    assert sorted(found.values()) == pytest.approx(sorted(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1}, FOUR),
        ({"temperature": 1, "dynatemp_range": 0, "dynatemp_exponent": 1}, FOUR),
        ({"top_k": 3}, (0.44444, 0.33333, 0.22222)),
        ({"top_k": 4}, (0.4, 0.3, 0.2, 0.1)),
        ({"top_k": 0}, FOUR),
        ({"top_p": 0}, (1.0,)),
        ({"top_p": 0.7}, (0.571429, 0.428571)),
        ({"top_p": 0.8}, (0.44444, 0.33333, 0.22222)),
        ({"top_p": 1.0}, FOUR),
        ({"min_p": 0.0}, FOUR),
        ({"min_p": 0.24}, FOUR),
        ({"min_p": 0.26}, (0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9)),
        ({"min_p": 0.49}, (0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9)),
        ({"min_p": 0.51}, (0.3 / 0.7, 0.4 / 0.7)),
        ({"min_p": 0.74}, (0.3 / 0.7, 0.4 / 0.7)),
        ({"min_p": 0.76}, (1.0,)),
        ({"min_p": 1.0}, (1.0,)),
        ({"top_n_sigma": 1.0}, (0.428571, 0.571429)),
        ({"top_n_sigma": 0.0}, FOUR),
        ({"top_n_sigma": 3.0}, FOUR),
    ],
    ids=str,
)
def test_cuts(options: dict[str, float], expected: Sequence[float]) -> None:
    check(distribution(logs(FOUR), **options), expected)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 0, "dynatemp_exponent": 2.0}, {"top_k": 1}])
def test_one_is_left(options: dict[str, float]) -> None:
    """Greedy chains are shortened to the choice of the likeliest, so it is the choice that is looked at."""
    from sampling_facts import pick

    assert pick(logs(FOUR), **options) == 3


def test_min_p_above_one_is_refused() -> None:
    with pytest.raises(InvalidSampling):
        Sampling(min_p=1.05)


@pytest.mark.parametrize(
    ("threshold", "left"), [(0.09, (0.1,)), (0.19, (0.2, 0.1)), (0.29, (0.3, 0.2, 0.1)), (0.39, DOWN)]
)
def test_xtc(threshold: float, left: Sequence[float]) -> None:
    found = distribution(logs(DOWN), xtc_probability=0.99, xtc_threshold=threshold, seed=0)
    check(found, [p / sum(left) for p in left])
    assert set(found) == set(range(4 - len(left), 4))


@pytest.mark.parametrize(
    ("probabilities", "left"),
    [((0.97, 0.01, 0.01, 0.01), (0.97,)), ((0.4, 0.2, 0.2, 0.2), (0.2, 0.2, 0.2))],
)
def test_typical(probabilities: Sequence[float], left: Sequence[float]) -> None:
    check(distribution(logs(probabilities), typical_p=0.5), [p / sum(left) for p in left])


@pytest.mark.parametrize(
    ("history", "options", "expected"),
    [
        ((0,), {"repeat_penalty": 50.0}, (0, 0.25, 0.25, 0.25, 0.25)),
        ((0, 1, 2), {"repeat_penalty": 50.0}, (0, 0, 0, 0.5, 0.5)),
        ((0, 1, 2, 0, 0), {"repeat_penalty": 50.0}, (0, 0, 0, 0.5, 0.5)),
        ((0,), {"frequency_penalty": 5.0, "presence_penalty": 5.0}, (0.000011, *(0.249997,) * 4)),
        ((0, 1, 2), {"frequency_penalty": 5.0, "presence_penalty": 5.0}, (*(0.000023,) * 3, 0.499966, 0.499966)),
        (
            (0, 1, 2, 0, 0),
            {"frequency_penalty": 5.0, "presence_penalty": 5.0},
            (0.000000, 0.000023, 0.000023, 0.499977, 0.499977),
        ),
    ],
)
def test_penalties(history: Sequence[int], options: dict[str, float], expected: Sequence[float]) -> None:
    found = distribution(logs((0.2,) * 5), history, repeat_last_n=len(history), **options)
    assert [found[token] for token in range(5)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("n", "history", "expected", "multiplier", "allowed", "last_n", "breakers"),
    [
        (4, (0, 1), (0.25,) * 4, 1.0, 2, 4, {}),
        (4, (0, 1, 2, 0, 1), (0.296923, 0.296923, 0.109232, 0.296923), 1.0, 2, 5, {}),
        (5, (0, 1, 3, 4, 0, 1), (0.2,) * 5, 1.0, 2, 6, {3: [[]]}),
        (5, (0, 1, 2, 0, 1), (0.241818, 0.241818, 0.032727, 0.241818, 0.241818), 2.0, 2, 5, {}),
        (5, (0, 1, 2, 3, 4, 0, 1), (0.2,) * 5, 1.0, 4, 7, {}),
    ],
)
def test_dry(
    n: int,
    history: Sequence[int],
    expected: Sequence[float],
    multiplier: float,
    allowed: int,
    last_n: int,
    breakers: Any,
) -> None:
    options = {"dry_base": 1.1, "dry_allowed_length": allowed, "dry_penalty_last_n": last_n}
    found = distribution(logs((1 / n,) * n), history, breakers, dry_multiplier=multiplier, **options)
    assert [found[token] for token in range(n)] == pytest.approx(expected, abs=1e-5)


QUEUES = [
    ("k", 10000, 1.0, 1.0),
    ("k", 1, 1.0, 1.0),
    ("p", 10000, 1.0, 1.0),
    ("p", 10000, 0.0, 1.0),
    ("m", 10000, 1.0, 1.0),
    ("m", 10000, 1.0, 1e-12),
    ("k", 100, 1.0, 1.0),
    ("p", 10000, 0.0003, 1.0),
    ("p", 10000, 0.8, 1.0),
    ("m", 10000, 1.0, 9997.9 / 9999),
    ("m", 10000, 1.0, 0.1),
    ("mp", 100, 0.8, 9997.9 / 9999),
    *[(order, 100, 0.8, 0.1) for order in ("kp", "km", "pk", "pm", "mk", "mp")],
    *[(order, 100, 0.8, 0.1) for order in ("kpm", "kmp", "pkm", "pmk", "mkp", "mpk")],
]


@pytest.mark.parametrize(("queue", "k", "p", "m"), QUEUES)
def test_orders(queue: str, k: int, p: float, m: float) -> None:
    """10000 tokens as likely as their numbers: what each stage leaves is known by counting."""
    n = 10000
    with np.errstate(divide="ignore"):
        logits = np.log(np.arange(n, dtype=np.float32))
    names = {"k": "top_k", "p": "top_p", "m": "min_p"}
    least = 0  # the smallest token left; token 0 has no probability and is never a candidate after a sort
    for done in range(1, len(queue) + 1):
        least = _least(queue[done - 1], least, n, k, p, m)
        options = {"samplers": [names[s] for s in queue[:done]], "top_k": k, "top_p": p, "min_p": m}
        if queue[:done] == "k" and k == 1:
            continue  # a greedy chain: tested above
        found = distribution(logits, **options)
        assert set(found) - {0} == set(range(max(least, 1), n))


def _least(stage: str, least: int, n: int, k: int, p: float, m: float) -> int:
    if stage == "k":
        return max(least, n - k)
    if stage == "m":
        return min(max(math.floor(m * n), 1, least), n - 1)
    wanted = math.ceil(np.float32(p) * np.float32(n * (n - 1) // 2 - least * (least - 1) // 2))
    total, token = 0, n
    while total < wanted or token == n:
        token -= 1
        total += token
    return token
