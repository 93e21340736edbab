"""The sweep over draft tokens, on a tiny model."""

from pathlib import Path
from typing import Any

import pytest

from llamina.bench.speculative import Sweep, measure_speculation
from skips import import_peer


def quiet(*what: object) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def record(stories: Path) -> dict[str, Any]:
    return measure_speculation(stories, Sweep((2, 4), (0.5, 1.0), 40, 1), "test", quiet, quiet)


def test_every_chance_with_every_number_of_drafts(record: dict[str, Any]) -> None:
    assert [r["name"] for r in record["results"]] == [
        f"{text} copied: {mode}" for text in ("50%", "100%") for mode in ("off", 2, 4, "auto")
    ]
    assert all(r["rate"] > 0 and len(r["seconds"]) == 1 for r in record["results"])


def test_drafts_come_true_as_often_as_the_text_is_copied(record: dict[str, Any]) -> None:
    found = {(r["text"], r["drafts"]): r for r in record["results"]}
    for text in ("50% copied", "100% copied"):
        off = found[text, "off"]
        assert (off["drafted"], off["acceptance"], off["ratio"]) == (0, None, 1.0)
    assert found["100% copied", 4]["acceptance"] == 1.0 and found["100% copied", 4]["accepted"] > 20
    half = found["50% copied", 4]
    assert half["drafted"] == 0 or half["acceptance"] < 1


def test_a_draft_model(stories: Path) -> None:
    """A model that drafts for itself is always right."""
    record = measure_speculation(stories, Sweep((3,), (), 12, 1, draft=stories), "test", quiet, quiet)
    results = [r for r in record["results"] if r["drafts"] == 3]
    assert [r["text"] for r in results] == [f"prose {n}" for n in (1, 2, 3, 4)]
    assert all(r["acceptance"] == 1.0 and r["drafted"] >= 6 for r in results)
    assert record["settings"]["draft"] == stories.name


def test_a_plot_of_the_sweep(record: dict[str, Any], tmp_path: Path) -> None:
    import_peer("matplotlib")
    from llamina.bench.plot import draw_sweep

    draw_sweep(record, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
