"""`llamina completion`: a completion script for a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from llamina.cli import powershell  # noqa: F401  (known to click from now on)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL; it completes commands, options and names of models.

    \b
    Examples:
      eval "$(llamina completion bash)"                               # in ~/.bashrc
      eval "$(llamina completion zsh)"                                # in ~/.zshrc
      llamina completion fish > ~/.config/fish/completions/llamina.fish
      llamina completion powershell | Out-String | Invoke-Expression  # in $PROFILE
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "llamina", "_LLAMINA_COMPLETE")
    click.echo(ShellComplete.source(script))  # bash's own first runs bash to ask its version
