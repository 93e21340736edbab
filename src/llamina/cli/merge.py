"""`llamina merge`: shards as one GGUF file."""

import json
from pathlib import Path

import click

from llamina.cli.options import json_option
from llamina.cli.terminal import Meter, tidy


@click.command("merge")
@click.argument("source", metavar="SHARD", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--delete-splits", "delete", is_flag=True, help="Delete the shards once OUT is complete.")
@click.option("-f", "--force", is_flag=True, help="Overwrite OUT if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@json_option
def command(source: Path, out: Path, delete: bool, force: bool, quiet: bool, as_json: bool) -> None:
    """Write the model that SHARD is one of as the file OUT, and print its path.

    The shards may be those of llama-gguf-split. The file appears when it is complete.

    \b
    Examples:
      llamina merge model-00001-of-00003.gguf model.gguf
    """
    from llamina.files import merge

    with tidy(), Meter("bytes", quiet or as_json, doing="writing") as meter:
        path = merge(source, out, delete=delete, overwrite=force, progress=meter)
    click.echo(json.dumps({"path": str(path), "bytes": path.stat().st_size}) if as_json else path)
