"""How scarce memory is: by what the system and a container say."""

from pathlib import Path

import psutil
import pytest

import llamina
from llamina.backends import host, pressure


def test_it_is_that_of_this_machine() -> None:
    found = llamina.memory_pressure()
    assert 0 < found.available <= found.total <= psutil.virtual_memory().total
    assert 0 <= found.used <= 1 and found.level in ("low", "medium", "high")
    assert found.stalled is None or 0 <= found.stalled <= 1


@pytest.mark.parametrize(
    ("free", "level"), [(100, "low"), (26, "low"), (25, "medium"), (11, "medium"), (10, "high"), (0, "high")]
)
def test_levels(free: int, level: str) -> None:
    found = pressure.MemoryPressure(100, free, None)
    assert found.level == level and found.used == pytest.approx(1 - free / 100)


def test_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit is what there is; pages of files that it can drop are not in use."""
    names = ("memory.max", "memory.current", "memory.stat")
    for name, text in zip(names, ("1000\n", "950\n", "inactive_file 50\n"), strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "stalls").write_text("some avg10=12.50 avg60=1.00 avg300=0.10 total=7\nfull avg10=0.00\n")
    monkeypatch.setattr(host, "CGROUPS", [tuple(tmp_path / name for name in names)])
    monkeypatch.setattr(pressure, "STALLS", tmp_path / "stalls")
    found = llamina.memory_pressure()
    assert found == pressure.MemoryPressure(1000, 100, 0.125) and found.level == "high"
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "stalls").write_text("")
    found = llamina.memory_pressure()
    assert found.total == psutil.virtual_memory().total and found.stalled is None
