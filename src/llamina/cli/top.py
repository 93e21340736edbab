"""`llamina top`: what a running server does, live."""

import sys
from importlib.util import find_spec

import click

from llamina.cli.options import Function

SERVER = "http://127.0.0.1:8080"


def theme_option(function: Function) -> Function:
    """`--theme`."""
    return click.option(
        "--theme",
        type=click.Choice(["dark", "light"]),
        default="dark",
        show_default=True,
        envvar="LLAMINA_THEME",
        help="Colours; Ctrl-L changes them.",
    )(function)


def need_textual() -> None:
    """Raises ClickException with the way to install it."""
    if find_spec("textual") is None:
        raise click.ClickException("Textual is not installed, and this view needs it: pip install 'llamina[tui]'")


def need_terminal() -> None:
    """Raises ClickException without one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.ClickException("there is no terminal to draw on: run it in one, or use `llamina chat`")


@click.command("top")
@click.option("--url", metavar="URL", default=SERVER, show_default=True, help="The server's address.")
@click.option(
    "--api-key", envvar="LLAMINA_API_KEY", metavar="KEY", help="The server's API key, with the scope admin:read."
)
@theme_option
def command(url: str, api_key: str | None, theme: str) -> int:
    """Show what a running server does: its models, requests under way, speed, latency, KV cache.

    The numbers are those of its /dashboard. A key cancels a request; F1 lists the keys.

    \b
    Examples:
      llamina top
      llamina top --url http://10.0.0.5:8080 --theme light
    """
    need_textual()
    need_terminal()
    return show(url, api_key, theme)


def show(url: str, key: str | None, theme: str) -> int:
    """Until one leaves; the exit code."""
    from llamina.repl.server_events import Server
    from llamina.tui.app import Terminal
    from llamina.tui.top import Top

    app = Terminal(lambda: Top(Server(url, key)), light=theme == "light")
    app.run()
    return app.return_code or 0
