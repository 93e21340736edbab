"""Who answers in a terminal, as `chat` and `tui` are told: a model of this machine, or one behind a URL."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.advice import advised
from llamina.cli.loading import QUANTIZING, load_engine
from llamina.cli.options import Function, locate, open_file

if TYPE_CHECKING:
    from llamina.engine import Engine
    from llamina.repl.partner import Partner

Progress = Callable[[str, int, int], None]


def partner_options(function: Function) -> Function:
    """`--url`, `--api-key`, `--system`, `-n` and `-c`."""
    for add in reversed(
        (
            click.option(
                "--url", metavar="URL", help="Talk to a server with OpenAI's API, such as http://127.0.0.1:8080/v1."
            ),
            click.option("--api-key", envvar="LLAMINA_API_KEY", metavar="KEY", help="With --url: its API key."),
            click.option("-sys", "--system", "--system-prompt", "system", metavar="TEXT", help="The system message."),
            click.option(
                "-n", "--max-tokens", "--predict", "--n-predict", "max_tokens", type=click.IntRange(min=1),
                default=1024, show_default=True, metavar="N", help="Most tokens of an answer.",
            ),
            click.option(
                "-c", "--ctx-size", "--n-ctx", "context", type=click.IntRange(min=2), metavar="N",
                help="Context size in tokens.",
            ),
        )
    ):  # fmt: skip
        function = add(function)
    return function


def check_url(
    url: str | None, hf: str | None, context: int | None, mmproj: str | None, changes: dict[str, Any]
) -> None:
    """Raises UsageError for options that a server does not take."""
    if url and (hf or context or mmproj):
        raise click.UsageError("--url names a server, which has its own models: leave -hf, -c and --mmproj out")
    if url and changes:
        flags = ", ".join(QUANTIZING.get(name, f"--{name.replace('_', '-')}") for name in changes)
        raise click.UsageError(f"--url names a server, which loads its models by itself: leave {flags} out")


def open_partner(
    model: str | None,
    hf: str | None,
    url: str | None,
    key: str | None,
    loading: dict[str, Any],
    progress: Progress | None = None,
) -> "Partner":
    """The partner, loaded; `loading` are options of `load`. How far it is goes to `progress`, or to stderr.

    Raises UsageError for a model without a chat template, and what loading or the server raises.
    """
    if url:
        from llamina.repl.remote import RemotePartner

        return RemotePartner(url, model, key)
    from llamina.repl.local import LocalPartner

    def open_engine(name: str) -> "Engine":
        file = open_file(locate(name if name != hf else None, hf if name == hf else None, progress=progress))
        if "tokenizer.chat_template" not in file.metadata and "chat_template" not in loading:
            raise click.UsageError(f"{name} has no chat template: it continues texts, as in `llamina run --raw`")
        with advised():
            return load_engine(file, loading, progress=progress)

    from llamina import hub

    return LocalPartner(model or hf or os.environ.get("LLAMINA_MODEL") or hub.DEFAULT, open_engine)
