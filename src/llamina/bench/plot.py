"""A record's rates as a bar chart, drawn by matplotlib."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llamina.errors import RequestError


def check_plot() -> None:
    """Raises RequestError if matplotlib is not installed; called before anything is measured."""
    if not find_spec("matplotlib"):
        raise RequestError("--plot needs matplotlib: pip install 'llamina[plot]'", "plot")


def draw_plot(record: dict[str, Any], path: Path) -> None:
    """Write a PNG with a panel for each task and a bar for each engine, in tokens per second."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result["name"] for result in record["results"]))
    figure = Figure(figsize=(1 + 2.2 * len(names), 3.6), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for name, panel in zip(names, panels, strict=True):
        results = [result for result in record["results"] if result["name"] == name]
        bars = panel.bar(
            [r["engine"] for r in results], [r["rate"] for r in results], color=["C0", "C7"][: len(results)]
        )
        panel.bar_label(bars, fmt="{:,.1f}", fontsize=9)
        panel.set_title(name, fontsize=10)
        panel.margins(y=0.15)
    panels[0].set_ylabel("tokens/s")
    machine = record["machine"]
    figure.suptitle(f"{record['file']['name']}, {record['settings']['threads']} threads, {machine['cpu']}", fontsize=10)
    figure.savefig(path, dpi=150)
