"""Quantizing a model when it is loaded: the options, and the copy that is loaded instead."""

from typing import TYPE_CHECKING

import click

from llamina.cli.options import Function
from llamina.cli.terminal import Meter, tidy

if TYPE_CHECKING:
    from llamina.gguf import GGUF


def overrides(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Types by patterns, from PATTERN=TYPE."""
    found: dict[str, str] = {}
    for value in values:
        pattern, sign, kind = value.rpartition("=")
        if not (sign and pattern and kind):
            raise click.BadParameter(f"{value!r} is not PATTERN=TYPE, such as ffn_down=q6_k")
        found.setdefault(pattern, kind)
    return found


def on_load_options(function: Function) -> Function:
    """`--quantize-on-load` and `--quantize-tensor`."""
    function = click.option(
        "--quantize-tensor",
        "on_load_tensors",
        metavar="PATTERN=TYPE",
        multiple=True,
        callback=overrides,
        help="With --quantize-on-load: type of the tensors whose names a regular expression is found in; repeatable.",
    )(function)
    return click.option(
        "--quantize-on-load",
        "on_load",
        metavar="TYPE",
        help="Load a copy in fewer bits, such as q4_k; it is made once, and kept in the cache.",
    )(function)


def quantized(file: "GGUF", kind: str | None, tensors: dict[str, str], threads: int | None, quiet: bool) -> "GGUF":
    """The model that is to be loaded: the file's, or its quantized copy."""
    if kind is None:
        if tensors:
            raise click.UsageError("--quantize-tensor says what --quantize-on-load does otherwise: give both")
        return file
    from llamina.quantization.cached import quantized_copy

    with tidy(), Meter("parts", quiet) as compiling, Meter("bytes", quiet, doing="quantizing") as writing:
        return quantized_copy(file, kind, tensors, threads=threads, progress=writing, compiling=compiling)
