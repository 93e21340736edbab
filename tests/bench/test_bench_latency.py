"""Latency and memory of a tiny model: what is counted, not how much of it there is."""

from pathlib import Path
from typing import Any

import pytest

from llamina.bench.latency import Waiting, measure_latency
from llamina.bench.memory_profile import measure_memory
from llamina.ops.batch import PAGE
from skips import import_peer


def quiet(*what: object) -> None:
    """Nobody watches."""


def test_percentiles_of_all_times(stories: Path) -> None:
    record = measure_latency(stories, Waiting((1, 3), 20, 6, 2), "test", quiet, quiet)
    one, three = record["results"]
    assert (one["name"], one["requests"], three["name"], three["requests"]) == ("1 at a time", 2, "3 at a time", 6)
    assert one["steps"] == 2 * 6  # a step for the prompt and its first token, one for each token after it
    assert record["kind"] == "latency" and record["settings"]["prompt"] == 20
    for result in record["results"]:
        for name in ("first_token", "prefill_step", "decode_step", "inter_token", "whole"):
            times = result[name]
            assert 0 < times["p50"] <= times["p95"] <= times["p99"]
        assert result["first_token"]["p50"] < result["whole"]["p50"] and result["rate"] > 0


@pytest.fixture(scope="module")
def memory(stories: Path) -> dict[str, Any]:
    return measure_memory(stories, Waiting((2,), 2 * PAGE, 8), 0.001, "test", quiet, quiet)


def test_memory_by_phases(memory: dict[str, Any]) -> None:
    phases = {result["name"]: result for result in memory["results"]}
    assert list(phases) == ["start", "load", "prompt", "generate", "idle", "close"]
    assert phases["load"]["most_pages_used"] == 0
    assert phases["generate"]["most_pages_used"] == 2 * 3  # two sequences of 2 pages and 8 tokens
    assert phases["generate"]["most_kv_bytes"] == 6 * memory["counted"]["page"] > 0
    assert phases["idle"]["most_pages_kept"] >= 2 * 2  # full pages of the prompts
    assert all(result["most_resident"] >= result["last_resident"] > 0 for result in phases.values())
    assert memory["counted"]["weights"] > 0


def test_samples_are_in_order(memory: dict[str, Any]) -> None:
    seconds = [sample["seconds"] for sample in memory["samples"]]
    assert seconds == sorted(seconds) and len(seconds) >= 11  # two at each change of phase
    assert memory["samples"][-1]["pages_used"] == 0


def test_a_plot_of_memory(memory: dict[str, Any], tmp_path: Path) -> None:
    import_peer("matplotlib")
    from llamina.bench.plot import draw_memory

    draw_memory(memory, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
