"""Turns, medians and ratios, with runners whose times are known."""

import pytest

from llamina.bench.interleave import Timing, race
from llamina.bench.model import OURS, THEIRS, _with_ratios
from llamina.bench.task import Task


class Known:
    """Takes the seconds it is told to, and writes down what it was asked."""

    def __init__(self, name: str, seconds: list[float], log: list[tuple[str, str, int]]) -> None:
        self._name, self._seconds, self._log = name, seconds, log

    def seconds(self, task: Task, seed: int) -> float:
        self._log.append((self._name, task.name, seed))
        return self._seconds[seed]


def test_contestants_take_turns_on_the_same_tokens() -> None:
    log: list[tuple[str, str, int]] = []
    a, b = Known("a", [1.0, 2.0, 4.0, 9.0], log), Known("b", [2.0, 2.0, 8.0, 9.0], log)
    heard: list[str] = []
    task = Task("generate", 10, 2, 64)
    timings = race([task], {"a": {"generate": a}, "b": {"generate": b}}, 3, heard.append)
    assert log[:2] == [("a", "tg2 b2", 3), ("b", "tg2 b2", 3)]  # warm-up: short, from an empty cache
    assert log[2:] == [(name, task.name, seed) for seed in range(3) for name in "ab"]
    assert [(t.engine, t.seconds, t.rate) for t in timings] == [("a", 2.0, 10.0), ("b", 2.0, 10.0)]
    assert heard[-1] == "tg10 b2 @ d64: b, run 3 of 3"


@pytest.mark.parametrize("warmups", [0, 3])
def test_warm_ups_are_as_many_as_asked_for(warmups: int) -> None:
    log: list[tuple[str, str, int]] = []
    race([Task("prompt", 8)], {"a": {"prompt": Known("a", [1.0] * 9, log)}}, 2, lambda _: None, warmups)
    assert len(log) == warmups + 2 and [seed for _, _, seed in log[-2:]] == [0, 1]


def test_a_timing_is_a_median() -> None:
    timing = Timing(Task("prompt", 100), "a", (1.0, 4.0, 2.0))
    assert timing.seconds == 2.0 and timing.rate == 50.0
    assert timing.spread == pytest.approx((100 - 25) / 2 / 50)


def test_ratios_are_ours_to_theirs() -> None:
    results = [
        {"name": "pp8", "engine": OURS, "rate": 30.0},
        {"name": "pp8", "engine": THEIRS, "rate": 20.0},
        {"name": "tg8", "engine": OURS, "rate": 5.0},
    ]
    ours, theirs, alone = _with_ratios(results)
    assert ours["ratio"] == 1.5
    assert "ratio" not in theirs and "ratio" not in alone
