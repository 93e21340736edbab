"""What the verbs that read texts share: options, the texts, the model."""

import sys
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import Function, decode, device_options, json_option, locate, lora_option, model_options
from llamina.cli.terminal import Meter

if TYPE_CHECKING:
    from llamina.engine import Engine


def reading_options(function: Function) -> Function:
    """The model, its adapters and context, the device, `--json` and `--quiet`."""
    function = click.option("-q", "--quiet", is_flag=True, help="Show nothing but the result.")(function)
    function = device_options(json_option(function))
    size = click.IntRange(min=2)
    function = click.option("-c", "--ctx-size", "context", type=size, metavar="N", help="Tokens of context.")(function)
    return model_options(lora_option(function))


def load_model(model: str | None, hf: str | None, quiet: bool, **options: Any) -> "Engine":
    """The engine of the model that is meant."""
    path = locate(model, hf, quiet)
    from llamina.engine import load

    with Meter("kernels", quiet) as meter:
        return load(path, progress=meter, **options)


def lines_of(texts: tuple[str, ...], what: str) -> list[str]:
    """The arguments, or the lines that are piped in; empty ones are not among them."""
    if not texts and sys.stdin is not None and not sys.stdin.isatty():
        texts = tuple(line for line in decode(sys.stdin.buffer.read(), "what is piped in").splitlines() if line.strip())
    if not texts:
        raise click.UsageError(f"no {what} is given: write it after the command, or pipe lines in")
    return list(texts)
