"""`llamina bench latency`: how long callers wait, by percentiles."""

from typing import Any

import click

from llamina.cli.measuring import (
    Counts,
    Ticker,
    command_line,
    gate,
    length_options,
    measured_options,
    model_file,
    output_options,
    print_record,
    read_baseline,
)
from llamina.cli.options import cores, kv_option, threads_option
from llamina.cli.rates import Record, machine_line, percentiles_text
from llamina.cli.table import Table

TIMES = {
    "first token": "first_token",
    "prefill step": "prefill_step",
    "decode step": "decode_step",
    "between tokens": "inter_token",
    "whole": "whole",
}


def waiting_options(function: Any) -> Any:
    """`-c`, `-p` and `-n`: how many requests, and how long."""
    function = length_options(128, 64)(function)
    return click.option(
        "-c", "--requests", type=Counts(1), default="1", show_default=True, help="Requests at the same moment."
    )(function)


@click.command("latency")
@measured_options
@waiting_options
@threads_option
@kv_option
@output_options
def latency_command(model: str | None, hf: str | None, shape: str | None, **given: Any) -> int:
    """Measure how long callers wait: the median, the 95th and the 99th percentile of times.

    -c requests come at the same moment, -r times. `first token` is since then; a `prefill step` computes prompts (and
    the next tokens of others), a `decode step` one token of each sequence; `between tokens` is within an answer.

    \b
    Examples:
      llamina bench latency -m model.gguf
      llamina bench latency -m model.gguf -c 1,8,32 -p 512 -n 128 --csv
      llamina bench latency --shape llama-3.2-1b:Q4_K_M -c 4 --json
    """
    from llamina.bench.latency import Waiting, measure_latency

    earlier = read_baseline(given["baseline"])
    sizes = (given["requests"], given["prompt"], given["tokens"], given["repeats"])
    asked = Waiting(*sizes, given["threads"] or cores(), given["kv_type"])
    path = model_file(model, hf, shape)
    with Ticker() as tick:
        record = measure_latency(path, asked, command_line(), tick, tick.loading)
    print_record(record, latency_table, latency_notes, given)
    return gate(record, earlier, given["threshold"])


def latency_table(record: Record) -> Table:
    """A row for each number of requests at a time."""
    table = Table(["requests", "tokens/s", *(f"{name}, ms" for name in TIMES)])
    for result in record["results"]:
        times = (percentiles_text(result[name]) for name in TIMES.values())
        table.rows.append([result["name"], f"{result['rate']:.1f}", *times])
    return table


def latency_notes(record: Record) -> list[str]:
    settings = record["settings"]
    return [
        machine_line(record),
        f"{record['file']['name']}: prompts of {settings['prompt']} tokens, answers of {settings['tokens']}, "
        f"{settings['repeats']} rounds, {settings['threads']} threads, KV cache in {settings['kv_type']}; "
        "times are P50 / P95 / P99",
    ]
