"""What the verbs that read texts share: options, the texts, the model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.llama_cpp import batch_options, flash_option
from llamina.cli.loading import QUANTIZING, load_engine, loading, loading_options
from llamina.cli.options import (
    Function,
    decode,
    device_options,
    json_option,
    locate,
    lora_option,
    model_options,
    open_file,
    piped,
    text_of,
)
from llamina.cli.terminal import Meter

if TYPE_CHECKING:
    from llamina.engine import Engine


def reading_options(function: Function) -> Function:
    """The model, its adapters and context, the device, `--json` and `--quiet`."""
    function = click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result, warnings and errors.")(
        function
    )
    function = loading_options(device_options(batch_options(flash_option(json_option(function)))))
    size = click.IntRange(min=2)
    function = click.option(
        "-c", "--ctx-size", "--n-ctx", "context", type=size, metavar="N", help="Context size in tokens."
    )(function)
    return model_options(lora_option(function))


def load_model(model: str | None, hf: str | None, quiet: bool, **options: Any) -> "Engine":
    """The engine of the model that is meant."""
    return load_engine(open_file(locate(model, hf, quiet)), options | loading(), quiet)


def load_base(model: str, quiet: bool, **options: Any) -> "Engine":
    """The engine of a model to compare with, which --quantize-on-load is not about."""
    wanted = {name: value for name, value in loading().items() if name not in QUANTIZING}
    return load_engine(open_file(locate(model, None, quiet)), options | wanted, quiet)


def lines_of(texts: Sequence[str], what: str) -> list[str]:
    """The arguments; without any, the lines that are piped in, but for empty ones."""
    found = texts or [line for line in piped().splitlines() if line.strip()]
    if not found:
        raise click.UsageError(f"no {what} is given: write it after the command, or pipe lines in")
    return list(found)


def one_file(file: Any, other: Any) -> Any:
    """The file that is given as an argument or with `-f`, or None. Raises UsageError if both are."""
    if file and other:
        raise click.UsageError("the file is given twice: as an argument and with -f")
    return file or other


def whole_text(file: Any) -> str:
    """The text in an open file; without one, what is piped in."""
    return text_of(decode(file.read(), file.name) if file else None, "text")


@contextmanager
def windows_meter(size: int, quiet: bool, doing: str = "reading") -> Iterator[Callable[[int, int], None]]:
    """Shows how many windows of a text, of so many tokens, are done."""
    with Meter("windows", quiet, doing=doing) as meter:
        yield lambda done, total: meter(f"{size} tokens at a time", done, total)
