"""The gate, with records made by hand."""

from typing import Any

import pytest

from llamina.bench import changed_conditions, regressions
from llamina.errors import RequestError


def made(rates: dict[str, float], engine: str = "llamina", cpu: str = "this", **settings: Any) -> dict[str, Any]:
    results = [{"name": n, "engine": engine, "rate": r, "unit": "tokens/s"} for n, r in rates.items()]
    return {"machine": {"cpu": cpu}, "file": {"name": "a.gguf"}, "settings": settings, "results": results}


def test_only_what_fell_by_more_than_the_threshold_is_named() -> None:
    before = made({"pp512": 100.0, "tg128": 100.0, "tg128 b8": 100.0})
    now = made({"pp512": 94.0, "tg128": 96.0, "tg128 b8": 200.0})
    found = regressions(now, before, 0.05)
    assert [fall.name for fall in found] == ["pp512"]
    assert found[0].part == pytest.approx(0.06)
    assert regressions(now, before, 0.0)[1].name == "tg128"
    assert regressions(now, before, 0.1) == []


def test_rates_of_one_record_only_do_not_count() -> None:
    assert regressions(made({"pp512": 100.0}), made({"pp512": 100.0, "tg128": 50.0}), 0.05) == []


def test_the_peer_may_fall() -> None:
    before, now = made({"pp512": 100.0}), made({"pp512": 100.0})
    before["results"] += made({"tg1": 9.0}, "llama.cpp")["results"]
    now["results"] += made({"tg1": 1.0}, "llama.cpp")["results"]
    assert regressions(now, before, 0.05) == []


def test_records_with_nothing_in_common_cannot_be_compared() -> None:
    with pytest.raises(RequestError, match=r"no rate in common with this run \(it has tg128\)"):
        regressions(made({"pp512": 1.0}), made({"tg128": 1.0}), 0.05)
    with pytest.raises(RequestError, match="the baseline is not the output"):
        regressions(made({"pp512": 1.0}), {"results": [{}]}, 0.05)


def test_other_circumstances_are_told() -> None:
    now, before = made({}, threads=2, repeats=5), made({}, cpu="that", threads=4, repeats=1)
    assert changed_conditions(now, before) == ["threads was 4, now 2", "cpu was that, now this"]
    assert changed_conditions(now, now) == []
