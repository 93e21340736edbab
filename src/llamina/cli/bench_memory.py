"""`llamina bench memory`: memory over time."""

from pathlib import Path
from typing import Any

import click

from llamina.cli.bench_latency import waiting_options
from llamina.cli.measuring import (
    Ticker,
    command_line,
    format_options,
    measured_options,
    model_file,
    plot_option,
    print_record,
)
from llamina.cli.options import cores, kv_option, threads_option
from llamina.cli.rates import Record, machine_line
from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text


@click.command("memory")
@measured_options
@waiting_options
@click.option(
    "--interval",
    type=click.FloatRange(min=1, max=60_000),
    metavar="MS",
    default=20.0,
    show_default=True,
    help="Milliseconds between two samples.",
)
@threads_option
@kv_option
@plot_option
@format_options
def memory_command(model: str | None, hf: str | None, shape: str | None, plot: Path | None, **given: Any) -> int:
    """Sample the process's resident memory and the KV cache pages in use, from loading the model to closing it.

    A row tells the most of each phase. --json and --csv have all samples.

    \b
    Examples:
      llamina bench memory -m model.gguf
      llamina bench memory -m model.gguf -c 8 -p 2000 -n 64 --plot memory.png
      llamina bench memory -m model.gguf --interval 5 --csv > memory.csv
    """
    from llamina.bench.latency import Waiting
    from llamina.bench.memory_profile import measure_memory
    from llamina.bench.plot import check_plot, draw_memory

    if len(given["requests"]) > 1:
        raise click.UsageError(f"-c is {','.join(map(str, given['requests']))}: one number is expected")
    if plot:
        check_plot()
    sizes = (given["requests"], given["prompt"], given["tokens"], 1)
    asked = Waiting(*sizes, given["threads"] or cores(), given["kv_type"])
    path = model_file(model, hf, shape)
    with Ticker() as tick:
        record = measure_memory(path, asked, given["interval"] / 1000, command_line(), tick, tick.loading)
    if plot:
        draw_memory(record, plot)
    print_record(record, memory_table, memory_notes, given)
    return 0


def memory_table(record: Record) -> Table:
    """A row for each phase."""
    table = Table(["phase", "seconds", "resident", "at its end", "KV pages", "of them MB", "kept pages"])
    for result in record["results"]:
        resident = [bytes_text(result[name]) for name in ("most_resident", "last_resident")]
        pages = [f"{result['most_pages_used']}", f"{result['most_kv_bytes'] / 1e6:.1f}", f"{result['most_pages_kept']}"]
        table.rows.append([result["name"], f"{result['seconds']:.2f}", *resident, *pages])
    return table


def memory_notes(record: Record) -> list[str]:
    settings, counted = record["settings"], record["counted"]
    sizes = ", ".join(f"{name} {bytes_text(counted[name])}" for name in ("weights", "cache", "states", "workspace"))
    return [
        machine_line(record),
        f"{record['file']['name']}: {settings['requests']} requests of {settings['prompt']} tokens, answers of "
        f"{settings['tokens']}, KV cache in {settings['kv_type']}; {len(record['samples'])} samples",
        f"by count: {sizes}; a page of the KV cache is {bytes_text(counted['page'])}",
    ]
