"""`llamina split`: a GGUF file as shards."""

import json
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import json_option
from llamina.cli.table import Table
from llamina.cli.terminal import Meter, bytes_text, note, tidy


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes in llama-gguf-split's units: 500M, 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("B")
        unit = {"K": 1000, "M": 1000**2, "G": 1000**3}.get(text[-1:], 1)
        try:
            return int(float(text.rstrip("KMG")) * unit)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a size such as 500M or 2G", param, ctx)


@click.command("split")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option(
    "--max-size", "--split-max-size", "max_bytes", type=Size(), metavar="SIZE", help="Most data in a shard: 500M, 2G."
)
@click.option(
    "--max-tensors",
    "--split-max-tensors",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most tensors in a shard; 128 unless --max-size is given.",
)
@click.option("--no-tensor-first-split", "bare_first", is_flag=True, help="Put metadata alone into the first shard.")
@click.option("--dry-run", is_flag=True, help="Show the shards, and write nothing.")
@click.option("-f", "--force", is_flag=True, help="Overwrite files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Print the paths only.")
@json_option
def command(
    source: Path, out: Path | None, dry_run: bool, force: bool, quiet: bool, as_json: bool, **limits: Any
) -> None:
    """Write the GGUF file IN as shards OUT-00001-of-0000N.gguf, and print their paths.

    OUT is by default IN without `.gguf`. The shards are those of llama-gguf-split, and appear when all are complete.
    Any of them names the model. Sizes are decimal and of the data alone; a larger tensor has a shard of its own.

    \b
    Examples:
      llamina split model.gguf --max-size 2G
      llamina split model.gguf parts/model --max-tensors 64 --no-tensor-first-split
      llamina split model.gguf --max-size 500M --dry-run
    """
    from llamina.files import plan_split, split

    if limits["max_bytes"] is not None and limits["max_tensors"] is not None:
        raise click.UsageError("give either --max-size or --max-tensors")
    if dry_run:
        shards = plan_split(source, out, **limits)
    else:
        with tidy(), Meter("bytes", quiet or as_json, doing="writing") as meter:
            shards = split(source, out, **limits, overwrite=force, progress=meter)
    if as_json:
        told = [{"path": str(shard.path), "tensors": shard.tensors, "bytes": shard.bytes} for shard in shards]
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif dry_run and not quiet:
        Table(["shard", "tensors", "data"], [[str(s.path), str(s.tensors), bytes_text(s.bytes)] for s in shards]).show()
    else:
        for shard in shards:
            click.echo(shard.path)
    most = limits["max_bytes"]
    if most is not None and not quiet and (over := [s for s in shards if s.bytes > most]):
        note(f"{len(over)} shards are larger, as one tensor of theirs is ({over[0].path.name})")
