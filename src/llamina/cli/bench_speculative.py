"""`llamina bench speculative`: what draft tokens bring."""

from pathlib import Path
from typing import Any

import click

from llamina.cli.measuring import (
    ANY,
    Counts,
    Rates,
    Ticker,
    command_line,
    gate,
    measured_options,
    model_file,
    output_options,
    plot_option,
    print_record,
    read_baseline,
)
from llamina.cli.options import cores, find_file, kv_option, threads_option
from llamina.cli.rates import Record, machine_line
from llamina.cli.table import Table


class Chances(Rates):
    """Chances between 0 and 1, separated by commas."""

    name = "P,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        found = super().convert(value, param, ctx)
        if max(found) > 1:
            self.fail(f"{max(found)} is no chance: give numbers above 0 and up to 1", param, ctx)
        return found


@click.command("speculative")
@measured_options
@click.option(
    "-k",
    "--draft-tokens",
    "drafts",
    type=Counts(1),
    default="1,2,4,8",
    show_default=True,
    help="Numbers of draft tokens in every step.",
)
@click.option(
    "--chance",
    "chances",
    type=Chances(),
    default="0.5,0.7,0.85,0.95",
    show_default=True,
    help="How likely a token is as it was in the text that is copied.",
)
@click.option("-md", "--draft", metavar="FILE|NAME", help="A draft model: it guesses at prose, and --chance is unused.")
@click.option(
    "-n", "--gen-tokens", "tokens", type=ANY, metavar="N", default=128, show_default=True, help="Tokens of each answer."
)
@threads_option
@kv_option
@plot_option
@output_options
def speculative_command(model: str | None, hf: str | None, shape: str | None, plot: Path | None, **given: Any) -> int:
    """Measure speculative decoding with each number of draft tokens, with as many as pay (auto), and without.

    Without --draft, draft tokens come by prompt lookup from a random text in the prompt. The answer is put into the
    model's mouth: a copy of that text in which some tokens are replaced, so that drafts come true with a known chance;
    all else is as it would be. With --draft, a smaller model drafts the continuations of four texts at temperature 0.8.

    \b
    Examples:
      llamina bench speculative -m model.gguf
      llamina bench speculative -m model.gguf -k 2,4,8,16 --chance 0.9 --plot sweep.png
      llamina bench speculative -m qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b --csv
    """
    from llamina.bench.plot import check_plot, draw_sweep
    from llamina.bench.speculative import Sweep, measure_speculation

    source = click.get_current_context().get_parameter_source("chances")
    if given["draft"] and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--chance has no effect with --draft: leave one of them out")
    if given["tokens"] < 2:
        raise click.UsageError("-n is 1: the first token comes with the prompt, so give 2 or more")
    earlier = read_baseline(given["baseline"])
    if plot:
        check_plot()
    draft = find_file(given["draft"]) if given["draft"] else None
    sizes = (given["drafts"], given["chances"], given["tokens"], given["repeats"])
    sweep = Sweep(*sizes, given["threads"] or cores(), given["kv_type"], draft)
    path = model_file(model, hf, shape)
    with Ticker() as tick:
        record = measure_speculation(path, sweep, command_line(), tick, tick.loading)
    if plot:
        draw_sweep(record, plot)
    print_record(record, sweep_table, sweep_notes, given)
    return gate(record, earlier, given["threshold"])


def sweep_table(record: Record) -> Table:
    """A row for each text and number of draft tokens."""
    table = Table(["text", "draft tokens", "tokens/s", "speed-up", "accepted", "of drafted"])
    for result in record["results"]:
        share = "" if result["acceptance"] is None else f"{result['acceptance']:.0%}"
        counts = [share, f"{result['drafted']}"]
        row = [result["text"], str(result["drafts"]), f"{result['rate']:.1f}", f"{result['ratio']:.2f}", *counts]
        table.rows.append(row)
    return table


def sweep_notes(record: Record) -> list[str]:
    settings = record["settings"]
    drafter = settings["draft"] or "prompt lookup"
    return [
        machine_line(record),
        f"{record['file']['name']}, drafts by {drafter}: answers of {settings['tokens']} tokens, "
        f"{settings['threads']} threads, KV cache in {settings['kv_type']}, medians of {settings['repeats']} runs",
    ]
