"""The stages against small tables, definitions written out, and brute force."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_facts import candidates, distribution, logs, neutral, pick

from llamina.errors import InvalidSampling
from llamina.sampling import Sampler, stages
from llamina.sampling.candidates import best

FOUR = (0.1, 0.2, 0.3, 0.4)


def entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 0.5}, {0: 1 / 30, 1: 4 / 30, 2: 9 / 30, 3: 16 / 30}),
        ({"temperature": 2.0}, {i: p**0.5 / sum(q**0.5 for q in FOUR) for i, p in enumerate(FOUR)}),
        ({"top_k": 99}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        # temperature comes last: the cuts are made on the model's own probabilities
        ({"top_p": 0.69, "temperature": 2.0}, {2: 3**0.5 / (3**0.5 + 2), 3: 2 / (3**0.5 + 2)}),
        ({"min_p": 0.6, "temperature": 0.5}, {2: 9 / 25, 3: 16 / 25}),
        ({"top_k": 3, "top_p": 0.5}, {2: 3 / 7, 3: 4 / 7}),  # top_p counts what top_k left: 4/9 < 0.5
        ({"top_k": 2, "min_p": 0.76}, {3: 1.0}),
        # unless another order is asked for: heated, 0.4 and 0.3 come to 0.66 < 0.69
        (
            {"top_p": 0.69, "temperature": 0.9, "samplers": ["temperature", "top_p"]},
            {
                2: 3 ** (1 / 0.9) / (3 ** (1 / 0.9) + 4 ** (1 / 0.9)),
                3: 4 ** (1 / 0.9) / (3 ** (1 / 0.9) + 4 ** (1 / 0.9)),
            },
        ),
        ({"top_p": 0.69, "temperature": 2.0, "samplers": ["temperature", "top_p"]}, {1: None, 2: None, 3: None}),
        ({"top_p": 0.69, "top_k": 2, "samplers": []}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"top_a": 1.0}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),  # at least 0.16
        ({"top_a": 0.6}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),  # at least 0.096
        ({"epsilon_cutoff": 0.25}, {2: 3 / 7, 3: 4 / 7}),
        ({"epsilon_cutoff": 0.9}, {3: 1.0}),
        ({"eta_cutoff": 0.5}, {1: 2 / 9, 2: 3 / 9, 3: 4 / 9}),  # √0.5·e^-1.28 = 0.1966
        ({"eta_cutoff": 0.1}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),  # √0.1·e^-1.28 = 0.088
        ({"xtc_probability": 1.0, "xtc_threshold": 0.25}, {0: 1 / 6, 1: 2 / 6, 2: 3 / 6}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.51}, {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.0}, {0: 1.0}),
        ({"typical_p": 0.29}, {2: 1.0}),  # -log 0.3 is nearest to the entropy 1.28
    ],
    ids=str,
)
def test_tables(options: dict[str, Any], expected: dict[int, float | None]) -> None:
    found = distribution(logs(FOUR), **options)
    assert found.keys() == expected.keys()
    for token, probability in expected.items():
        assert probability is None or found[token] == pytest.approx(probability, abs=1e-6)


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
    near_boundary = abs(mass - top_p) < 1e-5 or any(
        abs(weights[i] / weights[order[0]] - min_p) < 1e-5 for i in kept[1:]
    )
    kept = [i for i in kept if weights[i] >= min_p * weights[order[0]]]
    heat = {i: weights[i] ** (1 / temperature) for i in kept}
    if top_k == 1 or near_boundary:
        return
    found = distribution(logits, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    assert found.keys() == set(kept)
    for token in kept:
        assert found[token] == pytest.approx(heat[token] / sum(heat.values()), rel=1e-4, abs=1e-7)
    assert sum(found.values()) == pytest.approx(1)


@settings(max_examples=100, deadline=None)
@given(size=st.integers(1, 9000), n=st.integers(1, 5000), levels=st.integers(1, 500), banned=st.floats(0, 1))
def test_the_best_are_found_without_sorting(size: int, n: int, levels: int, banned: float) -> None:
    rng = np.random.default_rng([size, n, levels])
    values = rng.integers(0, levels, size).astype(np.float32)  # with many equal ones
    values[rng.random(size) < banned] = -np.inf
    order = [i for i in np.lexsort((np.arange(size), -values)).tolist() if values[i] > -np.inf]
    assert best(values, n).tolist() == order[:n]


@pytest.mark.parametrize("size", [5, 1500, 20000, 70000])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.9999])
def test_mass_of_wide_vocabularies(size: int, p: float) -> None:
    """However many of however many are needed, they are the likeliest, and no more than needed."""
    logits = np.random.default_rng(size).normal(0, 1.5, size).astype(np.float32)
    left = candidates(logits)
    stages.top_p(left, p)
    probabilities = candidates(logits).probabilities().astype(np.float64)
    sums = np.cumsum(np.sort(probabilities)[::-1])
    assert len(left.ids) == pytest.approx(int(np.searchsorted(sums, p)) + 1, abs=1 + size // 2000)
    assert np.array_equal(left.ids, np.lexsort((np.arange(size), -logits))[: len(left.ids)])


@pytest.mark.parametrize("seed", range(5))
def test_typical_by_definition(seed: int) -> None:
    probabilities = np.random.default_rng(seed).dirichlet(np.full(50, 0.5))
    shift = np.abs(-np.log(probabilities) - entropy(probabilities))
    order = np.argsort(shift)
    count = int(np.searchsorted(np.cumsum(probabilities[order]), 0.6, "right")) + 1
    assert set(distribution(logs(probabilities), typical_p=0.6)) == set(order[:count].tolist())


@pytest.mark.parametrize(("low", "high", "exponent"), [(0.2, 1.8, 1.0), (0.0, 2.0, 0.5), (0.5, 1.5, 3.0)])
def test_dynamic_temperature(low: float, high: float, exponent: float) -> None:
    value = low + (high - low) * (entropy(FOUR) / math.log(4)) ** exponent
    expected = distribution(logs(FOUR), temperature=value)
    options = {"temperature": (low + high) / 2, "dynatemp_range": (high - low) / 2, "dynatemp_exponent": exponent}
    assert distribution(logs(FOUR), **options) == pytest.approx(expected, abs=1e-5)


def test_dynamic_temperature_may_begin_at_zero() -> None:
    """Not greedy: an unsure model gets the heat."""
    assert len(distribution(np.zeros(4, np.float32), temperature=0.0, dynatemp_range=1.0)) == 4
    with np.errstate(divide="ignore"):
        assert pick(logs((1.0, 0.0)), temperature=0.0, dynatemp_range=1.0) == 0


def test_greedy_is_the_first_of_the_largest() -> None:
    assert pick([1, 5, 5, -2], temperature=0.0) == 1
    assert pick([1, 5, 5, -2], top_k=1) == 1


def test_greedy_after_stages_that_drop_the_best() -> None:
    logits = logs((0.5, 0.3, 0.2))
    assert pick(logits, temperature=0, xtc_probability=1.0, xtc_threshold=0.25) == 1
    assert pick(logits, temperature=0, xtc_probability=1.0, xtc_threshold=0.25, top_k=1) == 0  # nothing to drop
    assert pick(logs((0.4, 0.2, 0.2, 0.2)), temperature=0, typical_p=0.5) == 1
    order = {"samplers": ["xtc", "top_k"], "xtc_probability": 1.0, "xtc_threshold": 0.25, "top_k": 1}
    assert pick(logits, **order) == 1


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert pick([-40, 30, 29, 0], temperature=temperature) == 1


def test_a_huge_temperature_is_uniform() -> None:
    found = distribution(np.array([-40, 30, 29, 0], np.float32), temperature=1e300)
    assert all(p == pytest.approx(0.25) for p in found.values())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 4},
        {"top_p": 0.99},
        {"min_p": 0.01},
        {"typical_p": 0.99},
        {"top_n_sigma": 2.0},
        {"top_a": 0.01},
        {"epsilon_cutoff": 0.01},
        {"eta_cutoff": 0.01},
        {"xtc_probability": 0.5, "xtc_threshold": 0.5},
        {"dynatemp_range": 0.5},
        {"mirostat": 1},
        {"mirostat": 2},
        {"repeat_penalty": 2.0, "dry_multiplier": 1.0},
    ],
    ids=str,
)
def test_removed_tokens_are_never_drawn(options: dict[str, Any]) -> None:
    logits = np.array([-np.inf, 0, -np.inf, 0.001, -np.inf], np.float32)
    sampler = Sampler(neutral(seed=3, **options), 5)
    assert {sampler.sample(logits.copy(), (4, 0, 2) * i) for i in range(200)} == {1, 3}


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"mirostat": 2}], ids=str)
def test_nothing_to_choose_from(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSampling, match="no token is left"):
        pick([1.0, 2.0], **{**options, "banned_tokens": [0, 1]})


def test_biases_and_bans() -> None:
    found = distribution(logs(FOUR), logit_bias={0: math.log(2.0), 3: -math.inf}, banned_tokens=[2])
    assert found == pytest.approx({0: 0.5, 1: 0.5, 2: 0.0, 3: 0.0})
    assert pick([3, 2, 1], temperature=0, banned_tokens=[0]) == 1
    assert pick([3, 2, 1], temperature=0, logit_bias={2: 5}) == 2
    assert pick([3, 2, 1], temperature=0, logit_bias={0: 99}, banned_tokens=(0,)) == 1
    for options in ({"banned_tokens": [4]}, {"logit_bias": {4: 0.0}}):
        with pytest.raises(InvalidSampling, match="vocabulary of 4") as caught:
            pick(logs(FOUR), **options)
        assert caught.value.param in options


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_holds_the_surprise(version: int) -> None:
    """The surprise of what is drawn among what the cut leaves comes to tau."""
    from llamina.sampling.mirostat import Mirostat

    logits = (-1.2 * np.log(np.arange(1, 2001))).astype(np.float32)
    for tau in (2.0, 3.0, 4.0):
        state, surprises = Mirostat(version, tau, 0.1, len(logits)), []
        for i in range(1200):
            c = candidates(logits.copy(), range(i))
            token = state(c)
            surprises.append(-np.log2(c.probabilities()[c.ids == token][0]))
        assert float(np.mean(surprises[200:])) == pytest.approx(tau, abs=0.1)


def test_mirostat_2_by_definition() -> None:
    """One step written out: what is more surprising than mu goes, then mu follows what was drawn."""
    from llamina.sampling.mirostat import Mirostat

    state = Mirostat(2, 1.0, 0.5, 4)
    c = candidates(logs(FOUR))
    token = state(c)
    assert set(c.ids.tolist()) == {2, 3}  # -log2 of 0.1, 0.2, 0.3, 0.4 is 3.3, 2.3, 1.7, 1.3; mu begins at 2
    assert state.mu == pytest.approx(2 - 0.5 * (-math.log2({2: 3 / 7, 3: 4 / 7}[token]) - 1.0), abs=1e-5)


def test_mirostat_1_by_definition() -> None:
    from llamina.sampling.mirostat import Mirostat

    state = Mirostat(1, 1.0, 0.5, 4)
    c = candidates(logs(FOUR))
    down = sorted(FOUR, reverse=True)
    t = [math.log((i + 2) / (i + 1)) for i in range(3)]
    b = [math.log(down[i] / down[i + 1]) for i in range(3)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    k = max(1, int(((s - 1) * 2**2.0 / (1 - 4 ** -(s - 1))) ** (1 / s)))
    state(c)
    assert len(c.ids) == min(k, 4)


@pytest.mark.parametrize("logits", [[0.0], [0.0, 0.0, 0.0], [50.0, -50.0]])
@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_of_odd_distributions(logits: list[float], version: int) -> None:
    assert 0 <= pick(logits, mirostat=version) < len(logits)


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 6, "top_p": 0.9}],
)
def test_draws_follow_the_distribution(options: dict[str, float]) -> None:
    """Pearson's chi-square, at a level that one run in a thousand fails (the seed is fixed)."""
    logits = np.random.default_rng(11).normal(0, 1, 10).astype(np.float32)
    sampler, n = Sampler(neutral(seed=2, **options), 10), 20000
    drawn = np.bincount([sampler.sample(logits.copy(), range(i)) for i in range(n)], minlength=10)
    expected = distribution(logits, **options)
    assert drawn.sum() == sum(drawn[token] for token in expected)
    statistic = sum((drawn[token] - n * p) ** 2 / (n * p) for token, p in expected.items())
    limits = [0.0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88]  # 0.999 quantiles
    assert statistic < limits[len(expected) - 1]


def test_xtc_is_as_frequent_as_asked() -> None:
    sampler = Sampler(neutral(seed=4, temperature=0, xtc_probability=0.3, xtc_threshold=0.2), 3)
    drawn = [sampler.sample(logs((0.5, 0.3, 0.2)), range(i)) for i in range(4000)]
    assert np.mean([token != 0 for token in drawn]) == pytest.approx(0.3, abs=0.03)


def test_the_draw_of_a_place() -> None:
    """It depends on the seed, the stream and the place, not on what was drawn before."""
    logits = np.random.default_rng(5).normal(0, 2, 100).astype(np.float32)

    def run(seed: int, places: Sequence[int], stream: int = 0) -> list[int]:
        sampler = Sampler(neutral(seed=seed), 100, stream=stream)
        return [sampler.sample(logits.copy(), range(place)) for place in places]

    whole = run(7, range(50))
    assert whole == run(7, range(50))
    assert whole[20:] == run(7, range(20, 50))
    assert whole[::-1] == run(7, range(49, -1, -1))
    assert whole != run(8, range(50)) and whole != run(7, range(50), stream=1)


def test_the_hook() -> None:
    seen: list[tuple[list[int], int]] = []

    def hook(tokens: Sequence[int], logits: np.ndarray) -> np.ndarray:
        seen.append((list(tokens), len(logits)))
        return -logits

    sampler = Sampler(neutral(temperature=0), 3, processor=hook)
    assert sampler.sample(np.array([1, 0, 2], np.float32), [5, 6]) == 1
    assert seen == [([5, 6], 3)]
    wrong = Sampler(neutral(), 3, processor=lambda tokens, logits: logits[:2])
    with pytest.raises(InvalidSampling, match=r"shape \(2,\).*\(3,\)") as caught:
        wrong.sample(np.zeros(3, np.float32), [])
    assert caught.value.param == "logits_processor"
