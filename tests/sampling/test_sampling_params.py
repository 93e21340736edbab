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
    ("top_p", 0),
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
        {"top_p": 1},
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


def test_unchangeable() -> None:
    with pytest.raises(AttributeError):
        Sampling().temperature = 2.0  # type: ignore[misc]
