"""Records as charts, drawn by matplotlib."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.bench.divergence import Divergence

LEGIBLE = 0.05  # part of the time axis from which a phase has room for its name


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


def draw_loads(record: dict[str, Any], path: Path) -> None:
    """Write a PNG with the tokens per second of each load on a server, and its times by percentiles."""
    from matplotlib.figure import Figure

    results = record["results"]
    names = [result["name"] for result in results]
    times = {"first token": "first_token", "between tokens": "inter_token", "whole answer": "whole"}
    figure = Figure(figsize=(14, 3.6), layout="constrained")
    rates, *panels = figure.subplots(1, 1 + len(times))
    rates.bar_label(rates.bar(names, [result["rate"] for result in results], color="C0"), fmt="{:,.0f}", fontsize=9)
    rates.set_title("tokens/s", fontsize=10)
    for panel, (title, field) in zip(panels, times.items(), strict=True):
        for percentile in ("p50", "p95", "p99"):
            values = [1e3 * result[field].get(percentile, 0.0) for result in results]
            panel.plot(names, values, marker="o", label=percentile.upper())
        panel.set_title(f"{title}, ms", fontsize=10)
        panel.set_ylim(bottom=0)
    panels[0].legend(fontsize=9)
    for panel in (rates, *panels):
        panel.tick_params(axis="x", labelrotation=30, labelsize=8)
    figure.suptitle(f"{record['settings']['model']} at {record['settings']['url']}", fontsize=10)
    figure.savefig(path, dpi=150)


def draw_memory(record: dict[str, Any], path: Path) -> None:
    """Write a PNG with resident memory and KV cache pages over time; phases are shaded."""
    from matplotlib.figure import Figure

    samples, settings = record["samples"], record["settings"]
    seconds = [sample["seconds"] for sample in samples]
    figure = Figure(figsize=(9, 5), layout="constrained")
    resident, pages = figure.subplots(2, 1, sharex=True)
    resident.plot(seconds, [sample["resident"] / 1e6 for sample in samples], color="C0")
    resident.set_ylabel("resident, MB")
    for name, label in (("pages_used", "held by sequences"), ("pages_kept", "kept as prefixes")):
        pages.step(seconds, [sample[name] for sample in samples], where="post", label=label)
    pages.set_ylabel("KV cache pages")
    pages.set_xlabel("seconds")
    pages.legend(fontsize=9)
    for number, phase in enumerate(dict.fromkeys(sample["phase"] for sample in samples)):
        own = [sample["seconds"] for sample in samples if sample["phase"] == phase]
        for panel in (resident, pages):
            panel.axvspan(own[0], own[-1], color="C7", alpha=0.1 if number % 2 else 0.25, linewidth=0)
            panel.set_ylim(bottom=0)
        if own[-1] - own[0] > LEGIBLE * seconds[-1]:
            resident.text((own[0] + own[-1]) / 2, 0, phase, fontsize=9, ha="center", va="bottom")
    figure.suptitle(f"{record['file']['name']}, {settings['requests']} requests at a time", fontsize=10)
    figure.savefig(path, dpi=150)


def draw_sweep(record: dict[str, Any], path: Path) -> None:
    """Write a PNG with the speed-up of drafting by the number of draft tokens, a line for each text."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    panel = figure.subplots()
    results = [result for result in record["results"] if result["drafts"] != "off"]
    for text in dict.fromkeys(result["text"] for result in results):
        own = [result for result in results if result["text"] == text]
        panel.plot([str(r["drafts"]) for r in own], [r["ratio"] for r in own], marker="o", label=text)
    panel.axhline(1, color="C7", linewidth=1)
    panel.set_xlabel("draft tokens")
    panel.set_ylabel("speed-up over decoding one by one")
    panel.legend(fontsize=9)
    panel.set_title(record["file"]["name"], fontsize=10)
    figure.savefig(path, dpi=150)


def draw_divergence(found: "Divergence", title: str, path: Path) -> None:
    """Write a PNG with the percentiles of the KL divergence and of changes in the probability of tokens."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    spread, changes = figure.subplots(1, 2)
    percent = np.linspace(0, 100, len(found.divergences))
    spread.plot(percent, np.sort(np.maximum(found.divergences, 1e-9)))
    spread.axhline(found.mean, color="C7", linestyle="--", label=f"mean {found.mean:.4g}")
    spread.set(title="KL divergence", xlabel="percent of tokens", yscale="log")
    spread.legend(fontsize=9)
    changes.plot(percent, 100 * np.sort(found.changes))
    changes.axhline(0, color="C7", linewidth=0.8)
    changes.set(title="change of a token's probability, %", xlabel="percent of tokens")
    figure.suptitle(f"{title}: {100 * found.same.mean():.2f} % of top tokens are the same", fontsize=10)
    figure.savefig(path, dpi=150)
