"""What a request may ask of the sampler."""

import math

import pytest

from llamina import Sampling
from llamina.errors import InvalidSampling, RequestError

BAD = [
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", None),
    ("top_k", -1),
    ("top_k", 1.5),
    ("top_k", True),
    ("top_k", "40"),
    ("top_p", -0.5),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("min_p", math.nan),
    ("repeat_penalty", 0),
    ("repeat_penalty", -1),
    ("repeat_penalty", math.inf),
    ("repeat_last_n", -2),
    ("repeat_last_n", 0.5),
    ("top_n_sigma", -1),
    ("typical_p", 1.5),
    ("top_a", 2),
    ("epsilon_cutoff", -0.1),
    ("eta_cutoff", "x"),
    ("dynatemp_range", -1),
    ("dynatemp_exponent", -1),
    ("xtc_probability", 1.1),
    ("xtc_threshold", -0.1),
    ("frequency_penalty", math.inf),
    ("presence_penalty", math.nan),
    ("dry_multiplier", -1),
    ("dry_base", 0.9),
    ("dry_allowed_length", 0),
    ("dry_penalty_last_n", -2),
    ("dry_sequence_breakers", "\n"),
    ("dry_sequence_breakers", ["ok", ""]),
    ("dry_sequence_breakers", [1]),
    ("mirostat", 3),
    ("mirostat", 1.0),
    ("mirostat_tau", -1),
    ("mirostat_eta", 2),
    ("logit_bias", [1]),
    ("banned_tokens", 5),
    ("banned_tokens", "5"),
    ("samplers", "top_k"),
    ("samplers", ["top_k", "top_q"]),
    ("samplers", ["typ_p", "typical_p"]),
    ("seed", -1),
    ("seed", 1.0),
    ("seed", 1 << 64),
    ("seed", "x"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{n}={v}" for n, v in BAD])
def test_out_of_range(name: str, value: object) -> None:
    with pytest.raises(InvalidSampling) as caught:
        Sampling(**{name: value})
    assert caught.value.param == name
    assert name in str(caught.value) and (repr(value) in str(caught.value))
    assert isinstance(caught.value, RequestError)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 100},
        {"top_k": 0},
        {"top_k": 1 << 40},
        {"top_p": 0},
        {"top_p": 1},
        {"frequency_penalty": -2.0},
        {"presence_penalty": -2},
        {"dry_penalty_last_n": -1},
        {"dry_sequence_breakers": ()},
        {"logit_bias": {3: -math.inf, 4: -100}},
        {"mirostat": 2},
        {"min_p": 0},
        {"min_p": 1},
        {"repeat_penalty": 0.5},
        {"repeat_last_n": -1},
        {"seed": 0},
        {"seed": (1 << 64) - 1},
        {"seed": None},
    ],
    ids=str,
)
def test_within_range(options: dict[str, object]) -> None:
    params = Sampling(**options)
    assert all(getattr(params, name) == value for name, value in options.items())


@pytest.mark.parametrize(
    ("name", "value", "culprit"),
    [
        ("logit_bias", {"1": 2.0}, "'1'"),
        ("logit_bias", {-1: 2.0}, "-1"),
        ("logit_bias", {1: math.nan}, "nan"),
        ("logit_bias", {1: math.inf}, "inf"),
        ("banned_tokens", [-1], "-1"),
        ("banned_tokens", [1.5], "1.5"),
    ],
)
def test_the_culprit_is_named(name: str, value: object, culprit: str) -> None:
    with pytest.raises(InvalidSampling, match=f"{name} is {culprit}"):
        Sampling(**{name: value})


def test_names_of_stages() -> None:
    assert Sampling(samplers=["typ_p", "top_k"]).samplers == ("typical_p", "top_k")
    assert Sampling(samplers=()).samplers == ()


def test_unchangeable() -> None:
    with pytest.raises(AttributeError):
        Sampling().temperature = 2.0  # type: ignore[misc]


def test_the_defaults_are_llama_cpp_s() -> None:
    """As `common_params_sampling` has them."""
    known = Sampling()
    cuts = (known.temperature, known.top_k, known.top_p, known.min_p, known.typical_p, known.top_n_sigma)
    assert cuts == (0.8, 40, 0.95, 0.05, 1.0, 0.0)
    assert (known.repeat_penalty, known.repeat_last_n, known.frequency_penalty, known.presence_penalty) == (1, 64, 0, 0)


def test_a_seed_that_is_too_large_is_told_the_range() -> None:
    with pytest.raises(InvalidSampling, match="a whole number from 0 to 18446744073709551615 is expected"):
        Sampling(seed=1 << 64)
