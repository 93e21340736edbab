"""Records as CSV, and percentiles."""

import csv
import io
from typing import Any

import pytest

from llamina.bench.percentiles import percentiles
from llamina.bench.rows import csv_text, rows

RECORD: dict[str, Any] = {
    "llamina": "0.1.0",
    "kind": "latency",
    "time": "2026-01-01T00:00:00+00:00",
    "machine": {"cpu": "Abacus, two beads", "cores": 2, "python": "3.11.0", "load": 0.1},
    "file": {"name": "a.gguf", "path": "/a.gguf"},
    "settings": {"threads": 2},
    "results": [
        {"name": "one", "rate": 1.5, "times": {"p50": 0.1}, "seconds": [1.0, 2.0], "kind": "prompt"},
        {"name": "two", "rate": 2.5, "extra": None},
    ],
}


def test_a_row_for_each_result_with_the_conditions() -> None:
    text = csv_text(RECORD)
    one, two = csv.DictReader(io.StringIO(text))
    assert (one["cpu"], one["file"], one["settings.threads"]) == ("Abacus, two beads", "a.gguf", "2")
    assert (one["record"], one["kind"]) == ("latency", "prompt")
    assert (one["name"], one["rate"], one["times.p50"], one["seconds"]) == ("one", "1.5", "0.1", "1.0 2.0")
    assert (two["name"], two["times.p50"], two["extra"]) == ("two", "", "")
    assert text.count("\n") == 3 and "\r" not in text


def test_samples_come_before_results() -> None:
    found = rows({**RECORD, "samples": [{"seconds": 0.0, "resident": 5}]})
    assert [row["resident"] for row in found] == [5] and "rate" not in found[0]


def test_percentiles() -> None:
    found = percentiles([float(n) for n in range(101)])
    assert found == {"mean": 50.0, "p50": 50.0, "p95": 95.0, "p99": pytest.approx(99.0)}
    assert percentiles([]) == {}
