"""`llamina doctor`: what this machine has, what llamina makes of it, and what would help."""

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from llamina import __version__
from llamina.cli.options import json_option
from llamina.cli.terminal import busy, bytes_text


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact, and advice where something could be better; `bad` if it stands in the way."""

    name: str
    fact: str
    advice: str = ""
    bad: bool = False


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check this machine: CPU, memory and its bandwidth, GPU, folders, versions.

    The exit code is 1 if something stands in the way of running models.

    \b
    Examples:
      llamina doctor
      llamina doctor --json
    """
    findings: list[Finding] = []
    for check in CHECKS:
        with busy("measuring"):
            findings += check()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            mark = (
                click.style("✗", fg="red")
                if finding.bad
                else click.style("✓" if not finding.advice else "!", fg="green")
            )
            click.echo(f"{mark} {finding.name:{width}}  {finding.fact}")
            if finding.advice:
                click.secho(f"  {'':{width}}  → {finding.advice}", fg="yellow")
    return int(any(finding.bad for finding in findings))


def _versions() -> list[Finding]:
    from llamina.bench.machine import package_version

    packages = ("numpy", "numba", "llvmlite", "tokenizers", "llguidance", "huggingface_hub", "starlette", "triton")
    known = [f"{name} {found}" for name in packages if (found := package_version(name))]
    python = f"Python {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}"
    return [Finding("llamina", f"{__version__}, {python}"), Finding("packages", ", ".join(known))]


def _cpu() -> list[Finding]:
    from llamina.backends.host import usable_cores
    from llamina.backends.survey import instruction_sets
    from llamina.bench.machine import cpu_name

    used = instruction_sets()
    found = [Finding("CPU", f"{cpu_name()}, {usable_cores()} usable cores of {os.cpu_count()}")]
    if limit := os.environ.get("LLAMINA_ISA"):
        found.append(
            Finding("instructions", ", ".join(used) or "portable", f"LLAMINA_ISA={limit} limits them: unset it")
        )
    else:
        slow = "" if used else "kernels run without vector instructions, several times slower than on a CPU with AVX2"
        found.append(Finding("instructions", ", ".join(used) or "portable", slow))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > usable_cores():
        found.append(Finding("load", f"{load:.1f}", "other programs keep the cores busy: answers are slower meanwhile"))
    return found


def _memory() -> list[Finding]:
    from llamina.backends.host import usable_cores
    from llamina.backends.pressure import memory_pressure
    from llamina.bench.memory import read_bandwidth

    pressure = memory_pressure()
    free = pressure.available
    advice = "a small model fits; others need --offload" if free < 2 << 30 else ""
    found = [Finding("memory", f"{bytes_text(free)} available of {bytes_text(pressure.total)}", advice)]
    waits = "" if pressure.stalled is None else f", programs wait for it {pressure.stalled:.0%} of the time"
    scarce = "end other programs, or use --offload" if pressure.level == "high" or (pressure.stalled or 0) > 0.1 else ""
    found.append(Finding("memory pressure", f"{pressure.level}: {pressure.used:.0%} in use{waits}", scarce))
    if free > 1 << 30:
        rate = read_bandwidth(usable_cores())
        tokens = rate / 4.9e9
        fact = f"{rate / 1e9:.1f} GB/s read: an 8 B model in Q4_K_M cannot pass {tokens:.0f} tokens/s on the CPU"
        found.append(Finding("bandwidth", fact))
    return found


def _gpu() -> list[Finding]:
    from llamina.backends import survey

    found = survey.find_gpus()
    if found.usable:
        return [Finding("GPU", f"{', '.join(found.names)}: --backend auto uses the first")]
    if found.names:
        return [Finding("GPU", ", ".join(found.names), found.missing)]
    return [Finding("GPU", f"none: {found.missing}")]


def _folders() -> list[Finding]:
    from llamina.places import cache_dir, data_dir

    cache = cache_dir()
    parts = {name: _size(cache / name) for name in ("models", "kernels", "cuda")}
    shown = ", ".join(f"{bytes_text(size)} of {name}" for name, size in parts.items() if size) or "empty"
    large = parts["kernels"] + parts["cuda"] > 1 << 30
    found = [Finding("cache", f"{cache}: {shown}", f"kernels are made again if {cache / 'kernels'} is deleted" * large)]
    for name, folder in (("cache", cache), ("data", data_dir())):
        if not _writable(folder):
            variable = f"LLAMINA_{name.upper()}"
            found.append(Finding(name, f"{folder} cannot be written", f"set {variable} to another folder", bad=True))
    return [*found, Finding("data", str(data_dir()))]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def _writable(folder: Path) -> bool:
    """Whether files can be made in it, or it can be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


CHECKS: tuple[Callable[[], list[Finding]], ...] = (_versions, _cpu, _memory, _gpu, _folders)
