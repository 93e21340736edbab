"""`llamina bench energy`: tokens per joule."""

import os
from typing import Any

import click

from llamina.cli.measuring import (
    Counts,
    Ticker,
    command_line,
    format_options,
    measured_options,
    model_file,
    print_record,
)
from llamina.cli.options import cores, kv_option, threads_option
from llamina.cli.rates import Record, machine_line
from llamina.cli.table import Table


@click.command("energy")
@measured_options
@click.option(
    "-p", "--prompt-tokens", "prompts", type=Counts(0), default="512", show_default=True, help="Prompt lengths."
)
@click.option(
    "-n", "--gen-tokens", "generates", type=Counts(0), default="64", show_default=True, help="Tokens to generate."
)
@click.option("-b", "--batch", "batches", type=Counts(1), default="1", show_default=True, help="Sequences at a time.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=3600),
    metavar="S",
    default=10.0,
    show_default=True,
    help="How long each test runs, and how long the idle machine is watched before.",
)
@click.option("--gpu", is_flag=True, help="Compute on the GPU; its energy is counted beside the CPUs'.")
@threads_option
@kv_option
@format_options
def energy_command(model: str | None, hf: str | None, shape: str | None, **given: Any) -> int:
    """Measure tokens per joule, by the energy counters of the machine: RAPL of the CPUs; with --gpu, NVML of GPUs too.

    Counters tell of the whole machine: close what else runs. `beyond idle` leaves out what the idle machine would have
    used. Without a counter that can be read it says what is missing, and the exit code is 1.

    \b
    Examples:
      llamina bench energy -m model.gguf
      llamina bench energy -m model.gguf -p 0 -n 128 -b 1,8 --seconds 30 --csv
      llamina bench energy -m model.gguf --gpu
    """
    from llamina.bench import Options, grid
    from llamina.bench.efficiency import measure_efficiency
    from llamina.bench.energy import find_meters
    from llamina.errors import CapacityError

    gpu = given["gpu"] or os.environ.get("LLAMINA_BACKEND") == "cuda"
    if gpu and given["threads"]:
        raise click.UsageError("-t has no effect on a GPU (--gpu, or LLAMINA_BACKEND=cuda): leave one of them out")
    meters, missing = find_meters(gpu)
    if not meters:
        raise CapacityError(f"no energy counter can be read: {'; '.join(missing)}")
    tasks = grid(given["prompts"], given["generates"], given["batches"], [0])
    options = Options(tasks, given["threads"] or cores(), kv_type=given["kv_type"], gpu=gpu)
    path = model_file(model, hf, shape)
    with Ticker() as tick:
        record = measure_efficiency(path, options, meters, given["seconds"], command_line(), tick, tick.loading)
    record["missing"] = missing
    print_record(record, energy_table, energy_notes, given)
    return 0


def energy_table(record: Record) -> Table:
    """A row for each test."""
    table = Table(["test", "tokens/s", "W", "J", "tokens/J", "tokens/J beyond idle"])
    for result in record["results"]:
        ratios = [result[name] for name in ("tokens_per_joule", "tokens_per_own_joule")]
        shares = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        total = sum(result["joules"].values())
        table.rows.append([result["name"], f"{result['rate']:.1f}", f"{result['watts']:.1f}", f"{total:.1f}", *shares])
    return table


def energy_notes(record: Record) -> list[str]:
    settings = record["settings"]
    return [
        machine_line(record),
        f"{record['file']['name']}, {_place(settings)}, KV cache in {settings['kv_type']}, at least "
        f"{settings['seconds']:g} s each; the idle machine takes {record['idle_watts']:.1f} W",
        f"counters: {', '.join(record['meters'])}",
        *record["missing"],
    ]


def _place(settings: Record) -> str:
    return "on the GPU" if settings["backend"] == "cuda" else f"{settings['threads']} threads"
