"""How a model is loaded, as flags of all verbs that load one: quantized on the way, or read as it is needed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import Bytes, Function
from llamina.cli.terminal import Meter, tidy

if TYPE_CHECKING:
    from llamina.engine import Engine
    from llamina.gguf import GGUF

PLACE = "llamina.loading"  # in the context of a command
QUANTIZING = {  # option of `load`: flag
    "quantize": "--quantize-on-load",
    "quantize_tensors": "--quantize-tensor",
    "quantize_imatrix": "--quantize-imatrix",
    "requantize": "--allow-requantize",
}


def patterns(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Types by patterns, from PATTERN=TYPE."""
    found: dict[str, str] = {}
    for value in values:
        pattern, sign, kind = value.rpartition("=")
        if not (sign and pattern and kind):
            raise click.BadParameter(f"{value!r} is not PATTERN=TYPE, such as ffn_down=q6_k")
        found.setdefault(pattern, kind)
    return found


def _pins(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int | str] | None:
    """Layers by number, embeddings and output, with commas between them."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",") if part.strip()]
    wrong = [part for part in parts if part not in ("embeddings", "output") and not part.removeprefix("-").isdecimal()]
    if wrong or not parts:
        raise click.BadParameter(f"{value!r} is not layers, embeddings and output with commas, as output,0,-1")
    return [part if part in ("embeddings", "output") else int(part) for part in parts]


def loading_options(function: Function) -> Function:
    """The flags; `loading` tells what they ask for."""
    for option in (
        _option(
            "--prefetch",
            "prefetch",
            type=click.IntRange(min=0),
            metavar="N",
            help="With --offload: parts of the model that are read ahead.  [default: 1]",
        ),
        _option(
            "--pin",
            "pin",
            _pins,
            metavar="LAYERS",
            help="With --offload pinned: what stays in memory first, such as output,embeddings,0,-1.",
        ),
        _option(
            "--memory-budget",
            "memory_budget",
            type=Bytes(),
            metavar="SIZE",
            help="With --offload: most memory for weights, such as 500M or 2.5G.",
        ),
        _option(
            "--offload",
            "offload",
            type=click.Choice(["none", "budget", "pinned"]),
            help="Read weights from the file when they are needed. budget: the latest used stay in memory; pinned: "
            "always the same do.  [default: none]",
        ),
        _option(
            QUANTIZING["requantize"],
            "requantize",
            is_flag=True,
            help="With --quantize-on-load: also of a model that is quantized already.",
        ),
        _option(
            QUANTIZING["quantize_imatrix"],
            "quantize_imatrix",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="With --quantize-on-load: importance matrix, which types below Q3_K need.",
        ),
        _option(
            QUANTIZING["quantize_tensors"],
            "quantize_tensors",
            patterns,
            metavar="PATTERN=TYPE",
            multiple=True,
            help="With --quantize-on-load: type of the tensors whose names a regular expression is found in; "
            "repeatable.",
        ),
        _option(
            QUANTIZING["quantize"],
            "quantize",
            metavar="TYPE",
            help="Load a copy in fewer bits, such as q4_k; it is made once, and kept in the cache.",
        ),
    ):
        function = option(function)
    return function


def _option(flag: str, name: str, read: Callable[..., Any] | None = None, **settings: Any) -> Any:
    def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        value = read(ctx, param, value) if read else value
        if value is not None and value is not False and value != {}:  # 0 is a value
            ctx.meta.setdefault(PLACE, {})[param.name] = value

    return click.option(flag, name, expose_value=False, callback=remember, **settings)


def loading() -> dict[str, Any]:
    """The options of `load` that the flags of this command ask for. Raises UsageError if they make no sense."""
    found = dict(click.get_current_context().meta.get(PLACE, {}))
    if "quantize" not in found and (lone := [flag for name, flag in QUANTIZING.items() if name in found]):
        raise click.UsageError(f"{lone[0]} says how --quantize-on-load makes a copy: give both")
    return found


def load_engine(
    file: "GGUF", options: dict[str, Any], quiet: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> "Engine":
    """The engine of a file, loaded with options of `load`. How far it is goes to `progress`, or to stderr."""
    from llamina.engine import load

    if progress is not None:
        return load(file, progress=progress, **options)
    file = _quantized(file, {name: options[name] for name in QUANTIZING if name in options}, options, quiet)
    with Meter("parts", quiet) as meter:
        return load(file, progress=meter, **{name: value for name, value in options.items() if name not in QUANTIZING})


def _quantized(file: "GGUF", wanted: dict[str, Any], options: dict[str, Any], quiet: bool) -> "GGUF":
    """The model that is to be loaded: the file's, or its quantized copy."""
    if not wanted:
        return file
    from llamina.quantization.cached import quantized_copy

    kind, tensors, imatrix, requantize = (wanted.get(name) for name in QUANTIZING)
    with tidy(), Meter("parts", quiet) as compiling, Meter("bytes", quiet, doing="quantizing") as writing:
        return quantized_copy(
            file, str(kind), tensors, imatrix=imatrix, requantize=bool(requantize), threads=options.get("threads"),
            progress=writing, compiling=compiling,
        )  # fmt: skip
