"""The command line: one file per verb, imported when it is used."""

from llamina.cli.app import cli, main

__all__ = ["cli", "main"]
