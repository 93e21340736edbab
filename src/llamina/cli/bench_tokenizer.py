"""`llamina bench tokenizer`: how fast text becomes tokens."""

from typing import Any

import click

from llamina.cli.measuring import Ticker, command_line, gate, model_file, output_options, print_record, read_baseline
from llamina.cli.options import decode, model_options
from llamina.cli.rates import Record, machine_line
from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text


@click.command("tokenizer")
@model_options
@click.option("-f", "--text", type=click.File("rb"), help="The text; by default the help texts of Python's language.")
@output_options
def tokenizer_command(model: str | None, hf: str | None, text: Any, **given: Any) -> int:
    """Measure encoding and decoding in MB and tokens per second.

    Beside llamina, where they are installed: `tokenizers` and `tiktoken` with the vocabulary, merges and expressions of
    the file (byte-level BPE only). A whole text at once, its lines one by one, and tokens back to text.

    \b
    Examples:
      llamina bench tokenizer -m model.gguf
      llamina bench tokenizer -m model.gguf -f wiki.txt --csv
    """
    from llamina.bench.tokenization import measure_tokenizer, sample_text

    earlier = read_baseline(given["baseline"])
    chosen = decode(text.read(), text.name) if text else sample_text()
    if not chosen.strip():
        raise click.UsageError(f"{text.name} is empty: give a text")
    path = model_file(model, hf)
    with Ticker() as tick:
        record = measure_tokenizer(path, chosen, given["repeats"], command_line(), tick)
    print_record(record, tokenizer_table, tokenizer_notes, given)
    return gate(record, earlier, given["threshold"])


def tokenizer_table(record: Record) -> Table:
    """A row for each test and package."""
    table = Table(["test", "by", "MB/s", "tokens/s", "tokens", "llamina is"])
    for result in record["results"]:
        times = "" if result["engine"] == "llamina" else f"{result['ratio']:.2f} x"
        rates = [f"{result['rate']:.2f}", f"{result['tokens_per_second']:,.0f}", f"{result['tokens']}"]
        table.rows.append([result["name"], result["engine"], *rates, times])
    return table


def tokenizer_notes(record: Record) -> list[str]:
    settings, known = record["settings"], record["vocabulary"]
    return [
        machine_line(record),
        f"{record['file']['name']}: {known['model']} vocabulary of {known['tokens']} tokens; a text of "
        f"{bytes_text(settings['bytes'])} in {settings['lines']} lines, medians of {settings['repeats']} runs in turns",
        *(f"{name}: {reason}" for name, reason in record["missing"].items()),
    ]
