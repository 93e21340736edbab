"""`llamina diff`: what differs between two GGUF files."""

import json
import math
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import complete_model, find_file, json_option
from llamina.cli.summary import abbreviate, plain
from llamina.cli.table import Table
from llamina.cli.terminal import Meter

if TYPE_CHECKING:
    from llamina.files import Difference
    from llamina.gguf import GGUF


@click.command("diff")
@click.argument("a", metavar="A", shell_complete=complete_model)
@click.argument("b", metavar="B", shell_complete=complete_model)
@click.option("--tensors", is_flag=True, help="Measure the error of each tensor that differs, dequantized.")
@click.option("--data/--no-data", default=True, show_default=True, help="Compare the bytes of tensors of equal type.")
@click.option("--metadata/--no-metadata", default=True, show_default=True, help="Compare the metadata.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing: the exit code says it.")
@json_option
def command(a: str, b: str, tensors: bool, data: bool, metadata: bool, quiet: bool, as_json: bool) -> int:
    """Show what differs between two models: metadata, names, shapes and types of tensors, and their data.

    With --tensors also how far the values are apart: root mean square error, the same relative to A, the largest
    error, and the cosine. The exit code is 1 if anything differs.

    \b
    Examples:
      llamina diff old.gguf new.gguf
      llamina diff model-F16.gguf model-Q4_K_M.gguf --tensors
      llamina diff a.gguf b.gguf --no-metadata --json
    """
    from llamina.files import compare
    from llamina.gguf import open_model

    with open_model(find_file(a)) as one, open_model(find_file(b)) as other:
        if not metadata:
            for file in (one, other):
                file.metadata.clear()
        with Meter("bytes", quiet or as_json, doing="comparing") as meter:
            found = compare(one, other, data=data, errors=tensors, progress=meter)
        if as_json:
            click.echo(json.dumps(_facts(one, other, found), indent=2, ensure_ascii=False))
        elif not quiet:
            _show(one, other, found)
    return int(bool(found))


def _show(a: "GGUF", b: "GGUF", found: "Difference") -> None:
    for key in found.metadata_removed:
        click.secho(f"- {key} = {abbreviate(a.metadata[key])}", fg="red")
    for key in found.metadata_added:
        click.secho(f"+ {key} = {abbreviate(b.metadata[key])}", fg="green")
    for key in found.metadata_changed:
        click.echo(f"~ {key}: {_value(a, key)} → {_value(b, key)}")
    for name in found.tensors_removed:
        click.secho(f"- {_tensor(a, name)}", fg="red")
    for name in found.tensors_added:
        click.secho(f"+ {_tensor(b, name)}", fg="green")
    for name in a.tensors:
        if name in found.shapes or name in found.types:
            click.echo(f"~ {_tensor(a, name)} → {_tensor(b, name).partition(' ')[2]}")
        elif name in (found.data or ()):
            click.echo(f"~ {_tensor(a, name)}: other data")
    if found.errors:
        rows = [
            [e.name, *(f"{number:.4g}" for number in (e.rmse, e.relative, e.max)), f"{e.cosine:.6f}"]
            for e in found.errors
        ]
        Table(["tensor", "RMSE", "relative", "largest", "cosine"], rows).show()
    if not found:
        click.echo("no difference")


def _value(file: "GGUF", key: str) -> str:
    return f"{abbreviate(file.metadata[key])} ({file.metadata_types[key]})"


def _tensor(file: "GGUF", name: str) -> str:
    tensor = file.tensors[name]
    return f"{name} {tensor.type.name} {'x'.join(map(str, tensor.shape))}"


def _facts(a: "GGUF", b: "GGUF", found: "Difference") -> dict[str, Any]:
    return {
        "a": a.source,
        "b": b.source,
        "equal": not found,
        "metadata": {
            "removed": {key: plain(a.metadata[key]) for key in found.metadata_removed},
            "added": {key: plain(b.metadata[key]) for key in found.metadata_added},
            "changed": {key: [plain(file.metadata[key]) for file in (a, b)] for key in found.metadata_changed},
        },
        "tensors": {
            "removed": list(found.tensors_removed),
            "added": list(found.tensors_added),
            "shapes": {name: [list(shape) for shape in pair] for name, pair in found.shapes.items()},
            "types": {name: list(pair) for name, pair in found.types.items()},
            "data": None if found.data is None else list(found.data),
        },
        "errors": {
            e.name: {key: _number(getattr(e, key)) for key in ("rmse", "relative", "max", "cosine")}
            for e in found.errors
        },
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no such numbers
