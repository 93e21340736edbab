"""The machine and software that something was measured with."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llamina import __version__

PACKAGES = ("numpy", "numba", "llvmlite")


def describe_machine() -> dict[str, Any]:
    """The CPU, its cores and load, the system and the versions of packages."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory": _memory(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
    }


def header(kind: str, command: str) -> dict[str, Any]:
    """The first fields of every record."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"llamina": __version__, "kind": kind, "command": command, "time": now, "machine": describe_machine()}


def cpu_name() -> str:
    """The CPU's model name, or its architecture where the system does not tell."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, platform.processor() or platform.machine())


def package_version(name: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
