"""`llamina ps`: the models that a running server has loaded."""

import json
import math
from datetime import datetime, timedelta
from typing import Any

import click

from llamina.cli.options import json_option
from llamina.cli.running import RunningServer, server_options
from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text, note


@click.command("ps")
@server_options
@json_option
def command(url: str, api_key: str | None, as_json: bool) -> None:
    """List the models that a running server has loaded, or is loading.

    SIZE is that of the weights, MEMORY what the model's process has now, DEVICE what computes it. UNLOADED is when it
    makes room if nobody asks for it until then (`keep_alive`).

    \b
    Examples:
      llamina ps
      llamina ps --url http://192.168.1.5:8080 --json
    """
    server = RunningServer(url, api_key)
    rows = [_row(model) for model in server.loaded()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        Table(
            ["NAME", "SIZE", "MEMORY", "DEVICE", "CONTEXT", "REQUESTS", "UNLOADED"], [_cells(row) for row in rows]
        ).show()
    else:
        note(f"no model is loaded at {server.url}: the first request for one loads it")


def _row(model: dict[str, Any]) -> dict[str, Any]:
    meta = model["meta"]
    left = meta.get("idle_seconds_left")
    until = datetime.now().astimezone() + timedelta(seconds=left) if left is not None else None
    return {
        "name": model["id"],
        "status": meta["status"],
        "progress": meta.get("progress"),
        "size": meta.get("size"),
        "memory": meta.get("memory"),
        "device": meta.get("device"),
        "context": meta.get("n_ctx"),
        "requests": meta.get("requests"),
        "unloaded": until.isoformat(timespec="seconds") if until is not None else None,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    if row["status"] == "loading":
        return [row["name"], "-", "-", "-", "-", "-", _progress(row["progress"] or {})]
    sizes = [bytes_text(row[name]) if row[name] is not None else "-" for name in ("size", "memory")]
    counts = [str(row[name]) if row[name] is not None else "-" for name in ("context", "requests")]
    return [row["name"], *sizes, row["device"] or "-", *counts, _until(row)]


def _progress(progress: dict[str, Any]) -> str:
    done, total = progress.get("done", 0), progress.get("total", 0)
    return "loading" + (f", {100 * done // total} % of {progress.get('stage')}" if total else "")


def _until(row: dict[str, Any]) -> str:
    if row["unloaded"] is None:
        return "never"
    if row["requests"]:
        return "in use"
    seconds = (datetime.fromisoformat(row["unloaded"]) - datetime.now().astimezone()).total_seconds()
    return f"in {math.ceil(seconds / 60)} min" if seconds > 90 else f"in {max(math.ceil(seconds), 0)} s"
