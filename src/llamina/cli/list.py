"""`llamina list`: the models on this machine, and those that have a short name."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import json_option
from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text, note

if TYPE_CHECKING:
    from llamina.hub import Entry, Model


@click.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those of the catalogue that can be pulled.")
@json_option
def command(everything: bool, as_json: bool) -> None:
    """List pulled models, and the GGUF files in Hugging Face's cache.

    KIND is known of the catalogue's models: an instruct model was trained to answer, a base model to continue text, and
    an embedding model makes vectors.

    \b
    Examples:
      llamina list
      llamina list --all
      llamina ls --json
    """
    from llamina import hub

    models = hub.models()
    rows = [_pulled(model) for model in models]
    if everything:
        here = {model.entry.name for model in models if model.entry}
        rows += [_available(entry) for entry in hub.CATALOGUE.values() if entry.name not in here]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        headers = ["NAME", "SIZE", "KIND", "LICENCE", "MODIFIED"]
        click.echo(Table(headers, [_cells(row) for row in rows]).plain())
    else:
        note(f"no model has been pulled yet: try `llamina pull {hub.DEFAULT}`, or see `llamina list --all`")


def _pulled(model: "Model") -> dict[str, Any]:
    entry = model.entry
    return {
        "name": model.name,
        "size": model.size,
        "kind": entry.kind if entry else None,
        "licence": entry.licence if entry else None,
        "modified": model.modified.isoformat(timespec="seconds"),
        "path": str(model.path),
    }


def _available(entry: "Entry") -> dict[str, Any]:
    about = {"name": entry.name, "size": entry.size, "kind": entry.kind, "licence": entry.licence}
    return about | {"modified": None, "path": None}


def _cells(row: dict[str, Any]) -> list[str]:
    when = datetime.fromisoformat(row["modified"]).astimezone() if row["modified"] else None
    modified = when.strftime("%Y-%m-%d %H:%M") if when else "not pulled"
    return [row["name"], bytes_text(row["size"]), row["kind"] or "-", row["licence"] or "-", modified]
