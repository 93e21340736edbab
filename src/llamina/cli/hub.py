"""`llamina hub`: `pull`, `list` and `rm` in a group, hidden."""

import click

from llamina.cli import list as list_verb
from llamina.cli import pull, rm


@click.group("hub")
def command() -> None:
    """Pull, list and delete models: `llamina pull`, `llamina list` and `llamina rm`."""


for verb in (pull, list_verb, rm):
    command.add_command(verb.command)
