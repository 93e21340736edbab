"""`llamina version`: what this is, and what it runs on."""

import json
import os
import platform

import click

from llamina import __version__
from llamina.cli.options import json_option


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the versions of llamina, Python, numpy and numba, the backend and the CPU, for bug reports.

    \b
    Examples:
      llamina version
      llamina version --json
    """
    from llamina.backends import survey
    from llamina.backends.host import usable_cores
    from llamina.bench.machine import cpu_name, package_version

    gpus = survey.find_gpus()
    backend = os.environ.get("LLAMINA_BACKEND") or ("cuda" if gpus.usable else "cpu")
    facts = {
        "llamina": __version__,
        "python": platform.python_version(),
        "numpy": package_version("numpy"),
        "numba": package_version("numba"),
        "system": f"{platform.system()} {platform.machine()}",
        "backend": backend,
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "instruction_sets": survey.instruction_sets(),
        "gpus": gpus.names,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    packages = ", ".join(f"{name} {facts[name]}" for name in ("numpy", "numba"))
    click.echo(f"llamina {__version__}, Python {facts['python']}, {packages}, {facts['system']}")
    sets = ", ".join(survey.instruction_sets()) or "portable code"
    cpu = f"{facts['cpu']} ({facts['cores']} usable cores, {sets})"
    click.echo("; ".join([f"backend {backend}", cpu, *gpus.names]))
