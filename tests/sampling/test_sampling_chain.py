"""The stages against small tables (the probabilities are those of llama.cpp's own test) and brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamina.sampling import Sampling, chain, draw
from llamina.sampling.chain import Candidates

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
FOUR = (0.1, 0.2, 0.3, 0.4)


def logs(probabilities: tuple[float, ...]) -> np.ndarray:
    return np.log(np.array(probabilities)).astype(np.float32)


def distribution(logits: np.ndarray, **options: float) -> dict[int, float]:
    """Token → the probability that the stages leave it."""
    candidates = Candidates(np.arange(len(logits)), logits.astype(np.float64))
    for stage in chain(Sampling(**{**NEUTRAL, **options})):
        stage(candidates)
    return dict(zip(candidates.ids.tolist(), candidates.probabilities().tolist(), strict=True))


def pick(logits: np.ndarray, history: tuple[int, ...] = (), **options: float) -> int:
    params = Sampling(**{**NEUTRAL, **options})
    return draw(logits, params, chain(params), history, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1.0}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"temperature": 0.5}, {0: 1 / 30, 1: 4 / 30, 2: 9 / 30, 3: 16 / 30}),
        ({"temperature": 2.0}, {i: p**0.5 / sum(q**0.5 for q in FOUR) for i, p in enumerate(FOUR)}),
        ({"top_k": 1}, {3: 1.0}),
        ({"top_k": 3}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"top_k": 4}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"top_k": 99}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"top_k": 0}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"top_p": 0.01}, {3: 1.0}),
        ({"top_p": 0.69}, {2: 3 / 7, 3: 4 / 7}),
        ({"top_p": 0.8}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"top_p": 1.0}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"min_p": 0.24}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"min_p": 0.26}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"min_p": 0.49}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),
        ({"min_p": 0.51}, {2: 3 / 7, 3: 4 / 7}),
        ({"min_p": 0.74}, {2: 3 / 7, 3: 4 / 7}),
        ({"min_p": 0.76}, {3: 1.0}),
        ({"min_p": 1.0}, {3: 1.0}),
        # temperature comes last: the cuts are made on the model's own probabilities
        ({"top_p": 0.69, "temperature": 2.0}, {2: 3**0.5 / (3**0.5 + 2), 3: 2 / (3**0.5 + 2)}),
        ({"min_p": 0.6, "temperature": 0.5}, {2: 9 / 25, 3: 16 / 25}),
        ({"top_k": 3, "top_p": 0.5}, {2: 3 / 7, 3: 4 / 7}),  # top_p counts what top_k left: 4/9 < 0.5
        ({"top_k": 2, "min_p": 0.76}, {3: 1.0}),
    ],
)
def test_tables(options: dict[str, float], expected: dict[int, float]) -> None:
    found = distribution(logs(FOUR), **options)
    assert found.keys() == expected.keys()
    for token, probability in expected.items():
        assert found[token] == pytest.approx(probability, abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    # distinct logits, so that which candidate comes first is not a matter of taste
    values=st.lists(st.integers(-200, 200), min_size=1, max_size=40, unique=True),
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
    temperature=st.floats(0.05, 5),
)
def test_brute_force(values: list[int], top_k: int, top_p: float, min_p: float, temperature: float) -> None:
    logits = np.array(values, np.float32) / 16
    weights = {i: float(np.exp(v / 16)) for i, v in enumerate(values)}
    order = sorted(weights, key=lambda i: -weights[i])[: top_k or None]
    total, kept, mass = sum(weights[i] for i in order), [], 0.0
    for token in order:
        kept.append(token)
        mass += weights[token] / total
        if mass >= top_p:
            break
    near_boundary = abs(mass - top_p) < 1e-9 or any(
        abs(weights[i] / weights[order[0]] - min_p) < 1e-9 for i in kept[1:]
    )
    kept = [i for i in kept if weights[i] >= min_p * weights[order[0]]]
    heat = {i: weights[i] ** (1 / temperature) for i in kept}
    found = distribution(logits, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    if not near_boundary:
        assert found.keys() == set(kept)
        for token in kept:
            assert found[token] == pytest.approx(heat[token] / sum(heat.values()), rel=1e-6, abs=1e-12)
    assert sum(found.values()) == pytest.approx(1)


def test_greedy_is_the_first_of_the_largest() -> None:
    assert pick(np.array([1, 5, 5, -2], np.float32), temperature=0.0) == 1
    assert pick(np.array([1, 5, 5, -2], np.float32), top_k=1) == 1


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert pick(np.array([-40, 30, 29, 0], np.float32), temperature=temperature) == 1


def test_a_huge_temperature_is_uniform() -> None:
    found = distribution(np.array([-40, 30, 29, 0], np.float32), temperature=1e300)
    assert all(p == pytest.approx(0.25) for p in found.values())


def test_removed_tokens_are_never_drawn() -> None:
    logits = np.array([-np.inf, 0, -np.inf, 0, -np.inf], np.float32)
    params = Sampling(**NEUTRAL)
    rng = np.random.default_rng(3)
    assert {draw(logits, params, chain(params), (), rng) for _ in range(200)} == {1, 3}


@pytest.mark.parametrize(
    ("history", "n", "expected"),
    [
        ((), 64, [2.0, 1.0, -1.0]),
        ((0,), 64, [1.0, 1.0, -1.0]),
        ((2,), 64, [2.0, 1.0, -2.0]),
        ((0, 1, 2), -1, [1.0, 0.5, -2.0]),
        ((0, 0, 0), 64, [1.0, 1.0, -1.0]),  # once, however often it occurred
        ((0, 1, 2), 0, [2.0, 1.0, -1.0]),
        ((0, 1, 2), 1, [2.0, 1.0, -2.0]),
        ((0, 1, 2), 2, [2.0, 0.5, -2.0]),
        ((0, 1, 2), 99, [1.0, 0.5, -2.0]),
    ],
)
def test_repeat_penalty(history: tuple[int, ...], n: int, expected: list[float]) -> None:
    """Positive logits are divided by the penalty, negative ones multiplied; seen through what is drawn."""
    logits, params = np.array([2, 1, -1], np.float32), Sampling(repeat_penalty=2.0, repeat_last_n=n)
    seen: list[np.ndarray] = []

    def spy(candidates: Candidates) -> None:
        seen.append(candidates.logits.copy())

    draw(logits, params, [spy], history, np.random.default_rng(0))
    assert seen[0].tolist() == expected
    assert logits.tolist() == [2, 1, -1], "the model's logits are not touched"


@pytest.mark.parametrize(
    ("history", "expected"), [((0,), (0, 0.25, 0.25, 0.25, 0.25)), ((0, 1, 2, 0, 0), (0, 0, 0, 0.5, 0.5))]
)
def test_llama_cpp_penalties(history: tuple[int, ...], expected: tuple[float, ...]) -> None:
    """Five equal tokens and a penalty of 50: those seen are gone."""
    params = Sampling(**{**NEUTRAL, "repeat_penalty": 50.0})
    found: list[Candidates] = []
    draw(logs((0.2,) * 5), params, [found.append], history, np.random.default_rng(0))
    assert found[0].probabilities().tolist() == pytest.approx(expected, abs=1e-5)


def test_penalty_acts_on_greedy() -> None:
    logits = np.array([2.0, 1.9, 0.0], np.float32)
    assert pick(logits, (0,), temperature=0.0, repeat_penalty=1.1) == 1
    assert pick(logits, (), temperature=0.0, repeat_penalty=1.1) == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 6, "top_p": 0.9}],
)
def test_draws_follow_the_distribution(options: dict[str, float]) -> None:
    """Pearson's chi-square, at a level that one run in a thousand fails (the seed is fixed)."""
    logits = np.random.default_rng(11).normal(0, 1, 10).astype(np.float32)
    params = Sampling(**{**NEUTRAL, **options})
    stages, rng, n = chain(params), np.random.Generator(np.random.Philox(2)), 20000
    drawn = np.bincount([draw(logits, params, stages, (), rng) for _ in range(n)], minlength=10)
    expected = distribution(logits, **options)
    assert drawn.sum() == sum(drawn[token] for token in expected)
    statistic = sum((drawn[token] - n * p) ** 2 / (n * p) for token, p in expected.items())
    limits = [0.0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88]  # 0.999 quantiles
    assert statistic < limits[len(expected) - 1]


def test_one_seed_one_sequence() -> None:
    logits = np.random.default_rng(5).normal(0, 2, 100).astype(np.float32)
    params = Sampling(seed=7)

    def run(seed: int) -> list[int]:
        rng = np.random.Generator(np.random.Philox(seed))
        return [draw(logits, params, chain(params), (), rng) for _ in range(50)]

    assert run(7) == run(7) != run(8)
