"""Energy counters, with a folder and a package that stand in for the machine's."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamina.bench import Options, Task
from llamina.bench.efficiency import measure_efficiency
from llamina.bench.energy import Rapl, find_meters


def zone(folder: Path, place: str, name: str, energy: int, largest: int = 999) -> Path:
    path = folder / place
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    (path / "max_energy_range_uj").write_text(f"{largest}\n")
    return path


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed


def test_a_counter_that_begins_anew(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 900, 999)
    meter = Rapl("package-0", folder)
    assert meter.joules() == 0
    (folder / "energy_uj").write_text("990")
    assert meter.joules() == pytest.approx(90e-6)
    (folder / "energy_uj").write_text("10")  # 990 … 999, 0 … 10
    assert meter.joules() == pytest.approx(110e-6)


def test_zones_are_counted_once(tmp_path: Path, no_gpu: None) -> None:
    """Cores are part of their package, packages of the board; memory is part of neither everywhere."""
    for place, name in {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
    }.items():
        zone(tmp_path, place, name, 5)
    meters, missing = find_meters(False, tmp_path)
    assert [meter.name for meter in meters] == ["package-0", "package-0 dram", "package-1"] and not missing
    meters, missing = find_meters(True, tmp_path)
    assert not meters and missing == [
        "NVML: nvidia-ml-py is not installed: pip install nvidia-ml-py, if there is an NVIDIA GPU"
    ]


def test_what_is_missing_is_told(tmp_path: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    meters, missing = find_meters(False, tmp_path / "nowhere")
    assert not meters and "has no zone intel-rapl" in missing[0]
    zone(tmp_path, "intel-rapl:0", "package-0", 5)

    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("llamina.bench.energy._number", refuse)
    meters, missing = find_meters(False, tmp_path)
    assert not meters and "may be read by root alone: run as root" in missing[0]


class NvmlError(Exception):
    """As pynvml has one."""


def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = iter([1000, 1000, 4500])
    nvml = SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetTotalEnergyConsumption=lambda device: next(counter),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (meter,), missing = find_meters(True, tmp_path)
    assert (meter.name, meter.joules(), meter.joules()) == ("gpu-0", 0.0, 3.5) and len(missing) == 1

    def no_driver() -> None:
        raise NvmlError("Driver Not Loaded")

    nvml.nvmlInit = no_driver
    assert find_meters(False, tmp_path)[1] == missing
    assert find_meters(True, tmp_path)[1][1] == "NVML: Driver Not Loaded"


class Steady:
    """10 W, by a clock of its own: a joule each time it is asked."""

    def __init__(self, name: str) -> None:
        self.name, self._asked = name, 0

    def joules(self) -> float:
        self._asked += 1
        return float(self._asked)


def quiet(*what: object) -> None:
    """Nobody watches."""


@pytest.fixture
def record(stories: Path) -> Iterator[dict[str, Any]]:
    tasks = [Task("prompt", 8), Task("generate", 3, 2)]
    meters = [Steady("package-0"), Steady("gpu-0")]
    yield measure_efficiency(stories, Options(tasks, 1), meters, 0.01, "test", quiet, quiet)


def test_tokens_per_joule(record: dict[str, Any]) -> None:
    assert record["meters"] == ["package-0", "gpu-0"] and record["idle_watts"] > 0
    for result, work in zip(record["results"], (8, 6), strict=True):
        assert result["joules"] == {"package-0": 1.0, "gpu-0": 1.0}
        assert result["tokens"] == result["runs"] * work and result["seconds"] >= 0.01
        assert result["tokens_per_joule"] == result["tokens"] / 2
        assert result["watts"] == pytest.approx(2 / result["seconds"])
