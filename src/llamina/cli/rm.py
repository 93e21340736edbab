"""`llamina rm`: pulled models off this machine."""

import click

from llamina.cli.options import complete_model
from llamina.cli.terminal import bytes_text, note


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_model)
def command(names: tuple[str, ...]) -> None:
    """Delete pulled models. A file elsewhere is never touched.

    \b
    Examples:
      llamina rm smollm2
      llamina rm user/repo:Q8_0
    """
    from llamina import hub

    for name in names:
        for model in hub.models_of(name):
            size = model.size
            hub.remove(model)
            note(f"removed {model.name} ({bytes_text(size)})")
