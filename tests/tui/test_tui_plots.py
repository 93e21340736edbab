"""Numbers over time and how they are drawn: percentiles, rates, several models as one, columns of blocks."""

from typing import Any

import pytest

from llamina.tui.history import History, combined, percentile
from llamina.tui.plot import columns, duration, few, rounded_up
from llamina.tui.status_line import meter


def stats(n: int) -> dict[str, Any]:
    def histogram(counts: list[int], total: float = 0) -> dict[str, Any]:
        return {"bounds": [1, 2, 4], "counts": counts, "total": total}

    return {
        "steps": n, "prompt_tokens": 10 * n, "generated_tokens": 50 * n, "requests": {"stop": n},
        "gauges": {"pages": 10, "pages_used": 5, "pages_kept": 1}, "memory": {"resident": 7},
        "histograms": {
            "batch_sequences": histogram([0, n, 0, 0], 2 * n),
            "time_to_first_token_seconds": histogram([n, n, 0, 0]),
            "inter_token_seconds": histogram([0, 0, 4 * n, 0]),
        },
    }  # fmt: skip


def snapshot(time: float, states: list[str], **counts: int) -> dict[str, Any]:
    sequences = [{"state": state} for state in states]
    models = {name: {"status": "ready", "stats": stats(n), "sequences": sequences} for name, n in counts.items()}
    return {"time": time, "models": models}


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [([2, 2, 0, 0], 0.5, 1), ([0, 4, 0, 0], 0.25, 1.25), ([0, 0, 0, 3], 0.5, 4), ([0, 0, 0, 0], 0.5, None)],
)
def test_percentiles(counts: list[int], share: float, value: float | None) -> None:
    assert percentile([1, 2, 4], counts, share) == value


def test_points() -> None:
    """The same numbers as the page's dashboard has."""
    history = History()
    history.add(snapshot(100, [], a=1, b=1), "a")
    history.add(snapshot(102, ["running", "waiting", "running"], a=3, b=1), "a")
    point = history.points[1]
    assert (point.generated, point.prompt, point.batch, point.pages, point.kept) == (50, 10, 2, 50, 10)
    assert (point.running, point.waiting, point.first_median, point.each_median) == (2, 1, 1, 3)
    history.add(snapshot(103, [], a=1), "a")
    assert history.points[2].generated == 0, "counters that went down are those of a model that was loaded again"
    history.add({"time": 104, "models": {"a": {"status": "unloaded"}}}, "a")
    assert history.points[3].generated is None


def test_models_together() -> None:
    both = combined([stats(1), stats(2)])
    assert both["generated_tokens"] == 150 and both["gauges"]["pages"] == 20 and both["requests"] == {"stop": 3}
    assert both["histograms"]["batch_sequences"] == {"bounds": [1, 2, 4], "counts": [0, 3, 0, 0], "total": 6}
    history = History()
    history.add(snapshot(100, [], a=1, b=1))
    history.add(snapshot(101, ["running"], a=2, b=3))
    assert history.points[1].generated == 150 and history.points[1].running == 2


def test_columns_and_labels() -> None:
    assert columns([0, None, 5, 10, 20], 10, 4) == [0, 0, 16, 32, 32]
    assert [rounded_up(value) for value in (0, 0.3, 1, 7, 130, 200)] == [1, 0.5, 1, 10, 200, 200]
    assert (few(3), few(3.25), few(1234.5), duration(0.0214), duration(2)) == ("3", "3.2", "1,234", "21 ms", "2.0 s")
    assert meter(25, 100) == "context ███░░░░░░░░░ 25 % of 100"
    assert meter(1, 100).count("█") == 1 and meter(0, None) == "" and meter(7, None) == "7 tokens"
