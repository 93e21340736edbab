"""What `llamina quantize` and `llamina auto-quantize` share: options, and what is told of the file that they write."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.loading import patterns
from llamina.cli.options import Function, json_option, threads_option
from llamina.cli.terminal import bytes_text

if TYPE_CHECKING:
    from llamina.quantization.write import Change, Quantized


def file_arguments(function: Function) -> Function:
    """IN and OUT."""
    function = click.argument("out", type=click.Path(path_type=Path, dir_okay=False))(function)
    return click.argument("source", metavar="IN", type=click.Path(path_type=Path))(function)


def writing_options(function: Function) -> Function:
    """`--tensor-type`, `--allow-requantize`, `--dry-run`, `--force`, `--quiet`, `--threads` and `--json`."""
    function = threads_option(json_option(function))
    function = click.option("-q", "--quiet", is_flag=True, help="Print the path only.")(function)
    function = click.option("-f", "--force", is_flag=True, help="Overwrite OUT if it exists.")(function)
    function = click.option("--dry-run", is_flag=True, help="Show types and sizes, and write nothing.")(function)
    function = click.option(
        "--allow-requantize", "requantize", is_flag=True, help="Quantize what is quantized already."
    )(function)
    return click.option(
        "--tensor-type",
        "overrides",
        metavar="PATTERN=TYPE",
        multiple=True,
        callback=patterns,
        help="Type of the tensors whose names a regular expression is found in; repeatable, the first match counts.",
    )(function)


def print_json(made: "Quantized", about: Callable[["Change"], dict[str, Any]], **more: Any) -> None:
    """A file as JSON: what all have, `more` of this one, and its tensors with what `about` tells of each."""
    told = {"path": str(made.path), "type": made.type, "before": made.before, "after": made.after}
    told |= {"bits_per_weight": made.bits_per_weight, **more}
    told["tensors"] = {
        c.name: {"from": c.before.name, "to": c.after.name, "bytes": c.nbytes, **about(c)} for c in made.changes
    }
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))


def sizes_text(made: "Quantized", digits: int) -> str:
    """Bytes before and after, and bits per weight."""
    before, after = bytes_text(made.before), bytes_text(made.after)
    return f"{before} → {after}, {made.bits_per_weight:.{digits}f} bits per weight"
