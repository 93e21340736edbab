"""`llamina hash`: hashes of a GGUF file and its tensors."""

import json
from dataclasses import asdict

import click

from llamina.cli.options import complete_model, find_file, json_option
from llamina.cli.terminal import Meter

KINDS = ("sha256", "sha1", "xxh64", "blake3", "uuid")


@click.command("hash")
@click.argument("model", metavar="FILE|NAME", shell_complete=complete_model)
@click.option(
    "--type",
    "kinds",
    type=click.Choice([*KINDS, "all"]),
    multiple=True,
    default=["sha256"],
    show_default=True,
    help="The hash; may be repeated.",
)
@click.option("--tensors/--no-tensors", default=True, show_default=True, help="Also hash each tensor by itself.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@json_option
def command(model: str, kinds: tuple[str, ...], tensors: bool, quiet: bool, as_json: bool) -> None:
    """Print the hashes of a GGUF file: of each tensor, of the data of all tensors, and the SHA-256 of the file.

    The lines of tensors are those of llama-gguf-hash, the last one is that of sha256sum. `llamina verify --manifest`
    compares a file with them. All shards of a split model are hashed.

    \b
    Examples:
      llamina hash model.gguf > model.manifest
      llamina hash model.gguf --type xxh64 --no-tensors
      llamina hash smollm2 --type all --json
    """
    from llamina.files import hash_file
    from llamina.hub.shards import shards_of

    path = find_file(model)
    wanted = KINDS if "all" in kinds else tuple(dict.fromkeys(kinds))
    with Meter("bytes", quiet or as_json, doing="hashing") as meter:
        found = [
            line for shard in shards_of(path) for line in hash_file(shard, wanted, tensors=tensors, progress=meter)
        ]
    if as_json:
        click.echo(json.dumps([asdict(line) for line in found], indent=2, ensure_ascii=False))
        return
    for line in found:
        click.echo(str(line))
