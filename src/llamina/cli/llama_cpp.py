"""Flags of llama.cpp that are no option of ours under another name: what they ask for, in our terms."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
KV_TYPE = "f16"  # of keys or values unless -ctk or -ctv says otherwise
STEP_TOKENS = 512  # tokens of a step unless -ub says otherwise, there as here


def cache_type_options(function: Function) -> Function:
    """`-ctk` and `-ctv`, hidden; `agreed` tells what they ask for."""
    for flags in (("-ctv", "--cache-type-v"), ("-ctk", "--cache-type-k")):
        function = click.option(*flags, is_eager=True, expose_value=False, hidden=True, callback=_remember)(function)
    return function


def agreed(ctx: click.Context, kv_type: str | None) -> str | None:
    """The one type that `--kv-type`, `-ctk` and `-ctv` ask for; None if none is given. Raises UsageError."""
    keys, values = (ctx.meta.get(f"llamina.cache_type_{part}") for part in "kv")
    if keys is None and values is None:
        return kv_type
    keys, values = keys or KV_TYPE, values or KV_TYPE
    if keys != values:
        way = f"give both the same, as -ctk {keys} -ctv {keys}"
        raise click.UsageError(f"keys are to be in {keys} and values in {values}, and both have one format here: {way}")
    if kv_type not in (None, keys):
        raise click.UsageError(f"--kv-type is {kv_type}, and -ctk and -ctv are {keys}: give one of them")
    return str(keys)


def same_types(ctx: click.Context, param: click.Parameter, value: str) -> Any:
    """The callback of `--kv-type`: its value, or what `-ctk` and `-ctv` ask for. Raises UsageError."""
    given = ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    return param.type.convert(agreed(ctx, value if given else None) or value, param, ctx)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.meta[f"llamina.{param.name}"] = value


def batch_options(function: Function) -> Function:
    """`-ub`, tokens of one step, and `-b`."""
    function = click.option(
        "-ub",
        "--ubatch-size",
        "step_tokens",
        type=click.IntRange(min=1),
        metavar="N",
        callback=lambda ctx, param, value: step_tokens(ctx, value),
        help="Most tokens that one step computes; fewer take less memory.  "
        "[default: 512; on a GPU 2048 while nobody generates]",
    )(function)
    return batch_option(function)


def batch_option(function: Function) -> Function:
    """`-b`, hidden: a logical batch, of which a step computes no more than it has; see `step_tokens`."""
    return click.option(
        "-b",
        "--batch-size",
        type=click.IntRange(min=1),
        is_eager=True,
        expose_value=False,
        hidden=True,
        callback=_remember,
    )(function)


def step_tokens(ctx: click.Context, ubatch: int | None) -> int | None:
    """What `-ub` and `-b` leave for a step; None if neither makes a difference."""
    batch = ctx.meta.get("llamina.batch_size")
    if batch is None or batch >= (ubatch or STEP_TOKENS):
        return ubatch
    return int(batch)


def flash_option(function: Function) -> Function:
    """`-fa`: attention is computed in that way always."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value in ("off", "0"):
            raise click.BadParameter("attention never stores whole score matrices here: leave -fa off out")

    return click.option(
        "-fa",
        "--flash-attn",
        type=click.Choice(["on", "auto", "off", "1", "0"]),
        is_flag=False,
        flag_value="on",
        expose_value=False,
        hidden=True,
        callback=check,
    )(function)


def always(*flags: str) -> Callable[[Function], Function]:
    """A hidden flag that asks for what happens in any case."""
    return click.option(*flags, is_flag=True, expose_value=False, hidden=True)
