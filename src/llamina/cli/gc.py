"""`llamina gc`: what downloads and older versions have left behind, off this machine."""

import json
from typing import TYPE_CHECKING

import click

from llamina.cli.options import json_option
from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text, note

if TYPE_CHECKING:
    from llamina.hub import Leftover

KINDS = {"partial": "partial file", "blob": "unreferenced blob", "kernels": "old kernels", "copy": "made again"}


@click.command("gc")
@click.option("--delete", is_flag=True, help="Delete it; otherwise it is only listed.")
@click.option("--copies", is_flag=True, help="Also models quantized on load, and the random ones of `bench --shape`.")
@json_option
def command(delete: bool, copies: bool, as_json: bool) -> None:
    """List, or delete, what nothing needs: partial files, unreferenced blobs, kernels of older versions.

    A pull goes on with its partial download, and fetches all again once that is deleted. Blobs are contents in Hugging
    Face's cache that no file there links to. Kernels of older versions, or of other compilers and CPUs, are compiled
    again where they are needed, and so are the copies of models that --copies is about. What is being downloaded or
    written is left out. Models are never touched: see `llamina rm`.

    \b
    Examples:
      llamina gc
      llamina gc --delete
      llamina gc --copies --delete
      llamina gc --json
    """
    found = _leftovers(copies)
    sizes = [left.size for left in found]
    total = bytes_text(sum(sizes))
    if delete:
        for left in found:
            left.delete()
    if as_json:
        rows = [
            {"kind": left.kind, "path": str(left.path), "size": size, "deleted": delete}
            for left, size in zip(found, sizes, strict=True)
        ]
        click.echo(json.dumps(rows, indent=2))
    elif not found:
        note("there is nothing to delete")
    else:
        cells = [[str(left.path), bytes_text(size), KINDS[left.kind]] for left, size in zip(found, sizes, strict=True)]
        click.echo(Table(["PATH", "SIZE", "KIND"], cells).plain())
        note(f"deleted {total}" if delete else f"{total} can be deleted: `llamina gc --delete`")


def _leftovers(copies: bool) -> "list[Leftover]":
    from llamina import hub
    from llamina.backends.leftovers import stale_kernels

    kernels = [hub.Leftover("kernels", folder, tuple(paths)) for folder, paths in stale_kernels().items()]
    return [*hub.leftovers(copies), *kernels]
