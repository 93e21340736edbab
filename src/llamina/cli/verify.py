"""`llamina verify`: whether a GGUF file is sound."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamina.cli.options import complete_model, find_file, json_option
from llamina.cli.terminal import Meter, bytes_text

if TYPE_CHECKING:
    from llamina.gguf import GGUF
    from llamina.gguf.tensor import Tensor

CHUNK = 1 << 22  # bytes that are dequantized at a time


@click.command("verify")
@click.argument("model", metavar="FILE|NAME", shell_complete=complete_model)
@click.option("--sha256", is_flag=True, help="Also compute the SHA-256, and compare it where the catalogue has one.")
@click.option("--values/--no-values", default=True, show_default=True, help="Look for NaN and infinity in all tensors.")
@json_option
def command(model: str, sha256: bool, values: bool, as_json: bool) -> int:
    """Check a GGUF file: its header, that all tensors are inside it, and that their values are finite.

    The exit code is 1 if something is wrong.

    \b
    Examples:
      llamina verify model.gguf
      llamina verify smollm2 --sha256
      llamina verify big.gguf --no-values --json
    """
    from llamina.gguf import open_model
    from llamina.hub.shards import shards_of

    path = find_file(model)
    file = open_model(path)  # raises for what is wrong with the header, or a tensor that is not whole
    wrong = dict(_not_finite(file)) if values else {}
    digests = dict(_digests(shards_of(path))) if sha256 else {}
    mistakes = [f"{name} has {count} values that are NaN or infinite" for name, count in wrong.items()]
    mistakes += [f"{name} has another SHA-256 than the catalogue's" for name, (_, same) in digests.items() if not same]
    size = sum(tensor.nbytes for tensor in file.tensors.values())
    if as_json:
        hashes = {name: digest for name, (digest, _) in digests.items()}
        facts = {"file": str(path), "tensors": len(file.tensors), "bytes": size, "sha256": hashes}
        click.echo(json.dumps(facts | {"mistakes": mistakes}, indent=2))
        return int(bool(mistakes))
    for name, (digest, _) in digests.items():
        click.echo(f"{digest}  {name}")
    for mistake in mistakes:
        click.secho(mistake, fg="red")
    if not mistakes:
        click.echo(f"{path} is sound: {len(file.tensors)} tensors, {bytes_text(size)}")
    return int(bool(mistakes))


def _not_finite(file: "GGUF") -> Iterator[tuple[str, int]]:
    """The tensors with values that are no numbers, and how many."""
    total, done = sum(tensor.nbytes for tensor in file.tensors.values()), 0
    with Meter("bytes", doing="reading") as meter:
        for tensor in file.tensors.values():
            if count := _odd_values(tensor):
                yield tensor.name, count
            done += tensor.nbytes
            meter("all tensors", done, total)


def _odd_values(tensor: "Tensor") -> int:
    import numpy as np

    from llamina.quant import FORMATS

    format = FORMATS.get(tensor.type.id)
    if format is None:  # whole numbers
        return 0
    blocks = tensor.data.reshape(-1, format.nbytes)
    step = max(CHUNK // format.nbytes, 1)
    parts = (format.decode(blocks[at : at + step]) for at in range(0, len(blocks), step))
    return sum(int(np.size(part) - np.count_nonzero(np.isfinite(part))) for part in parts)


def _digests(paths: list[Path]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The SHA-256 of files by their names, and whether it is the catalogue's, if that has them."""
    from llamina import hub
    from llamina.hub.assemble import checksum

    with Meter("bytes", doing="hashing") as meter:
        for path in paths:
            meter(path.name, 0, path.stat().st_size)
            digest, entry = checksum(path), hub.entry_of_file(path)
            meter(path.name, 1, 1)
            yield path.name, (digest, entry is None or entry.sha256 == digest)
