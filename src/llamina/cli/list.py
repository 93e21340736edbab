"""`llamina list`: the models on this machine."""

import json

import click

from llamina.cli.options import json_option
from llamina.cli.terminal import bytes_text, note


@click.command("list")
@json_option
def command(as_json: bool) -> None:
    """List pulled models, and the GGUF files in Hugging Face's cache.

    \b
    Examples:
      llamina list
      llamina ls --json
    """
    from llamina import hub

    models = hub.models()
    rows = [
        {
            "name": model.name,
            "size": model.size,
            "modified": model.modified.isoformat(timespec="seconds"),
            "path": str(model.path),
        }
        for model in models
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not models:
        note("no model has been pulled yet: try `llamina pull smollm2`")
        return
    width = max(len("NAME"), *(len(model.name) for model in models))
    click.echo(f"{'NAME':{width}}  {'SIZE':>9}  MODIFIED")
    for model in models:
        when = model.modified.astimezone().strftime("%Y-%m-%d %H:%M")
        click.echo(f"{model.name:{width}}  {bytes_text(model.size):>9}  {when}")
