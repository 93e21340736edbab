"""Energy that this machine says it has used: CPUs by RAPL, NVIDIA's GPUs by NVML."""

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

POWERCAP = Path("/sys/class/powercap")
WHOLE = "psys"  # of the whole board: the packages are in it
INSIDE = "dram"  # the only part of a package that its own count may lack


class Meter(Protocol):
    """Something that counts energy."""

    name: str

    def joules(self) -> float:
        """Joules since the meter was made; never less than the last time. Raises OSError if it cannot be read."""
        ...


@dataclass(slots=True)
class Rapl:
    """A zone of Linux's power capping framework, whose counter begins anew when it is full."""

    name: str
    folder: Path
    _range: int = field(init=False)
    _last: int = field(init=False)
    _total: int = field(init=False, default=0)  # microjoules

    def __post_init__(self) -> None:
        self._range = _number(self.folder / "max_energy_range_uj")
        self._last = _number(self.folder / "energy_uj")

    def joules(self) -> float:
        now = _number(self.folder / "energy_uj")
        self._total += now - self._last if now >= self._last else now - self._last + self._range + 1
        self._last = now
        return self._total / 1e6


@dataclass(slots=True)
class Nvml:
    """A GPU's counter of millijoules (Volta and later)."""

    name: str
    nvml: Any
    device: Any
    _start: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._start = self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device)

    def joules(self) -> float:
        return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device) - self._start) / 1e3


def find_meters(gpu: bool, powercap: Path = POWERCAP) -> tuple[list[Meter], list[str]]:
    """The meters that can be read, those of GPUs only with `gpu`; and a sentence for each kind that is missing.

    With `gpu` there is none unless a GPU's can be read: the others would tell a small part of the whole.
    """
    zones, no_rapl = _rapl(powercap)
    gpus, no_nvml = _nvml() if gpu else ([], "")
    meters = [*zones, *gpus] if gpus or not gpu else []
    return meters, [reason for reason in (no_rapl, no_nvml) if reason]


def _rapl(powercap: Path) -> tuple[list[Meter], str]:
    zones = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []  # AMD's have the same name
    found: list[Meter] = []
    for zone in zones:
        try:
            name = (zone / "name").read_text().strip()
            inside = zone.name.count(":") > 1
            if name == WHOLE or (inside and name != INSIDE):
                continue
            found.append(Rapl(f"{_package(powercap, zone)} {name}" if inside else name, zone))
        except PermissionError:
            return [], f"RAPL: {zone / 'energy_uj'} may be read by root alone: run as root, or allow it"
        except OSError as error:
            return [], f"RAPL: {zone} cannot be read: {error.strerror}"
    if not found:
        return [], f"RAPL: {powercap} has no zone intel-rapl: virtual machines have none, nor have other CPUs"
    return found, ""


def _package(powercap: Path, zone: Path) -> str:
    """The name of the zone that another is inside of."""
    return (powercap / zone.name.rpartition(":")[0] / "name").read_text().strip()


def _nvml() -> tuple[list[Meter], str]:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return [], "NVML: nvidia-ml-py is not installed: pip install nvidia-ml-py, if there is an NVIDIA GPU"
    try:
        nvml.nvmlInit()
        devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [Nvml(f"gpu-{i}", nvml, device) for i, device in enumerate(devices)], ""
    except nvml.NVMLError as error:
        return [], f"NVML: {error}"


def _number(path: Path) -> int:
    return int(path.read_text())
