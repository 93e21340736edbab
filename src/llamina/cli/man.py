"""`llamina man`: manual pages, made from the commands themselves."""

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from llamina import __version__
from llamina.cli.app import VERBS


@click.command("man")
@click.argument("verbs", nargs=-1, metavar="[VERB]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the pages of all commands into a folder, such as ~/.local/share/man/man1.",
)
@click.pass_context
def command(ctx: click.Context, verbs: tuple[str, ...], output: Path | None) -> None:
    """Print the manual page of a command as roff, by default that of llamina itself.

    \b
    Examples:
      llamina man run | man -l -
      llamina man bench serve | man -l -
      llamina man --output ~/.local/share/man/man1
    """
    whole = ctx.find_root().command
    root = click.Context(whole, info_name="llamina", **whole.context_settings)
    if output is None:
        click.echo(page(_find(root, verbs)), nl=False)
        return
    if verbs:
        raise click.UsageError("--output writes the pages of all commands: leave the names out")
    output.mkdir(parents=True, exist_ok=True)
    for found in contexts(root):
        path = output / f"{found.command_path.replace(' ', '-')}.1"
        path.write_text(page(found), encoding="utf-8")
        click.echo(path)


def contexts(ctx: click.Context) -> Iterator[click.Context]:
    """That of a command, and those of all commands in it."""
    yield ctx
    for name in _names(ctx):
        yield from contexts(_inside(ctx, name))


def page(ctx: click.Context) -> str:
    """The manual page of a command."""
    command, name = ctx.command, ctx.command_path.replace(" ", "-")
    lines = [
        f'.TH "{name.upper()}" 1 "" "llamina {__version__}" "llamina"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(_short(ctx))}",
    ]
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    lines += [".SH SYNOPSIS", _roff(usage), ".SH DESCRIPTION", *_text(command.help or "")]
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    lines += [".SH OPTIONS", *(line for record in records for line in _entry(*record))]
    if names := _names(ctx):
        lines.append(".SH COMMANDS")
        for verb in names:
            lines += _entry(f"{name}-{verb}(1)", _short(_inside(ctx, verb)))
    if command.epilog:
        lines += [".SH ENVIRONMENT AND EXIT STATUS", _roff(command.epilog)]
    if ctx.parent is not None:
        lines += [".SH SEE ALSO", f"{_roff(ctx.parent.command_path.replace(' ', '-'))}(1)"]
    return "\n".join(lines) + "\n"


def _find(ctx: click.Context, verbs: tuple[str, ...]) -> click.Context:
    for verb in verbs:
        if verb not in (known := _names(ctx)):
            there = f"there are {', '.join(known)}" if known else f"{ctx.command_path} has none"
            raise click.UsageError(f"there is no command {verb!r} in {ctx.command_path}: {there}")
        ctx = _inside(ctx, verb)
    return ctx


def _names(ctx: click.Context) -> list[str]:
    return ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []


def _inside(ctx: click.Context, name: str) -> click.Context:
    assert isinstance(ctx.command, click.Group)
    command = ctx.command.get_command(ctx, name)
    assert command is not None
    return click.Context(command, info_name=name, parent=ctx)


def _short(ctx: click.Context) -> str:
    """What a command does, in a line."""
    named = VERBS.get(str(ctx.info_name)) if ctx.parent is not None and ctx.parent.parent is None else None
    return (named or ctx.command.get_short_help_str(200)).rstrip(".")


def _text(help: str) -> Iterator[str]:
    """Paragraphs; one that begins with \\b keeps its lines."""
    for at, paragraph in enumerate(re.split(r"\n\s*\n", cleandoc(help))):
        first, *rest = paragraph.splitlines()
        if at:
            yield ".PP"
        yield from (".nf", *map(_roff, rest), ".fi") if first == "\b" else map(_roff, (first, *rest))


def _entry(term: str, description: str) -> list[str]:
    return [".TP", f"\\fB{_roff(term)}\\fP", _roff(" ".join(description.split()))]


def _roff(text: str) -> str:
    """A line of text, without anything that roff would take for a request."""
    escaped = text.strip("\n").replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
