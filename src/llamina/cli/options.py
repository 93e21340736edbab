"""Options that several verbs share, and the model they name."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from llamina.backends import BACKENDS
from llamina.cli.terminal import Meter

if TYPE_CHECKING:
    from llamina.engine import Engine

Function = TypeVar("Function", bound=Callable[..., Any])


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of pulled models; failing those, files."""
    from llamina import hub

    known = dict.fromkeys([*hub.names(), *hub.SOURCES])
    found = [CompletionItem(name) for name in known if name.lower().startswith(incomplete.lower())]
    return found or [CompletionItem(incomplete, type="file")]


def model_options(function: Function) -> Function:
    """`-m` and `-hf`."""
    function = click.option(
        "-hf",
        "--hf",
        metavar="USER/REPO[:QUANT]",
        help="A model on Hugging Face; Q4_K_M unless a quantization is named.",
    )(function)
    return click.option(
        "-m",
        "--model",
        metavar="FILE|NAME",
        shell_complete=complete_model,
        help="A GGUF file or a pulled model; LLAMINA_MODEL, else smollm2.",
    )(function)


def kv_option(function: Function) -> Function:
    """`--kv-type`."""
    return click.option(
        "--kv-type",
        type=click.Choice(["f16", "f32", "q8_0", "q4_0"]),
        default="f16",
        show_default=True,
        help="How the cache keeps keys and values.",
    )(function)


def _adapters(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """FILE or FILE=SCALE; a file whose own name has a = is found first."""
    found: dict[str, float] = {}
    for value in values:
        path, scale = value, "1"
        if not os.path.exists(value) and "=" in value:
            path, _, scale = value.rpartition("=")
        if not os.path.exists(path):
            raise click.BadParameter(f"{path} is not there: give a file or folder, and =SCALE behind it if you like")
        if path in found:
            raise click.BadParameter(f"{path} is given twice: give it once, with the sum of the scales")
        try:
            found[path] = float(scale)
        except ValueError:
            raise click.BadParameter(f"{scale!r} is not a scale: give a number behind {path}=") from None
    return found


def lora_option(function: Function) -> Function:
    """`--lora`."""
    return click.option(
        "--lora",
        "adapters",
        multiple=True,
        callback=_adapters,
        metavar="FILE[=SCALE]",
        help="A LoRA adapter to add to the model; several times.",
    )(function)


def load_adapters(engine: "Engine", files: dict[str, float]) -> dict[str, float]:
    """The adapters' names in the engine, with their scales."""
    return {engine.load_adapter(file): scale for file, scale in files.items()}


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: 500M, 2.5G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().upper().removesuffix("B")
        unit = 1 << 10 * (" KMGT".index(text[-1]) if text and text[-1] in "KMGT" else 0)
        try:
            return int(float(text.rstrip("KMGT")) * unit)
        except ValueError:
            self.fail(f"{value!r} is no number of bytes: 500M and 2.5G are", param, ctx)


def offload_options(function: Function) -> Function:
    """`--offload` and `--memory-budget`."""
    function = click.option(
        "--memory-budget", type=Bytes(), metavar="SIZE", help="Of weights in memory, with --offload: 500M, 2.5G."
    )(function)
    return click.option(
        "--offload",
        type=click.Choice(["none", "budget", "pinned"]),
        default="none",
        show_default=True,
        help="Read weights from the file as their turn comes: the latest ones stay, or always the same.",
    )(function)


def device_options(function: Function) -> Function:
    """`--threads` and `--backend`."""
    function = click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        show_default=True,
        help="What computes.",
    )(function)
    return click.option(
        "-t",
        "--threads",
        type=click.IntRange(min=1),
        envvar="LLAMINA_THREADS",
        metavar="N",
        help="Threads; all usable cores unless given.",
    )(function)


def json_option(function: Function) -> Function:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def locate(model: str | None, hf: str | None = None, quiet: bool = False) -> Path:
    """The file that is meant. Models known by a short name are fetched when they are not here yet."""
    from llamina import hub
    from llamina.errors import ModelNotFound

    if model and hf:
        raise click.UsageError("-m and -hf both name a model: give one of them")
    name = model or os.environ.get("LLAMINA_MODEL") or hub.DEFAULT
    with Meter("bytes", quiet) as meter:
        if hf:
            return hub.pull(hf, meter)
        if os.path.isfile(name):
            return Path(name)
        try:
            return hub.find(name)
        except ModelNotFound:
            if hub.source_of(name) is None:
                raise
        return hub.pull(name, meter)


def text_of(text: str | None, what: str) -> str:
    """An argument, or what is piped in."""
    if text is None and sys.stdin is not None and not sys.stdin.isatty():
        text = decode(sys.stdin.buffer.read(), "what is piped in")
    if not text:
        raise click.UsageError(f"no {what} is given: write it after the command, or pipe it in")
    return text


def decode(content: bytes, what: str) -> str:
    """UTF-8 bytes as text, on every platform."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text: byte {error.start} is {content[error.start]:#x}") from None
