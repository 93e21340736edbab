"""`llamina rm`: pulled models off this machine."""

import os

import click

from llamina.cli.options import complete_model
from llamina.cli.terminal import bytes_text, note


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_model)
def command(names: tuple[str, ...]) -> None:
    """Delete the pulled models NAME. Files elsewhere are never touched.

    \b
    Examples:
      llamina rm smollm2
      llamina rm user/repo:Q8_0
    """
    from llamina import hub
    from llamina.errors import ModelNotFound

    for name in names:
        try:
            models = hub.models_of(name)
        except ModelNotFound:
            if os.path.exists(name):
                raise click.UsageError(f"{name} is no pulled model but a path: delete it yourself") from None
            raise
        for model in models:
            size = model.size
            hub.remove(model)
            note(f"removed {model.name} ({bytes_text(size)})")
