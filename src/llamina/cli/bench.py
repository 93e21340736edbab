"""`llamina bench`: how fast models and kernels run on this machine, alone or against llama.cpp."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llamina.cli.options import (
    cores,
    json_option,
    kv_option,
    locate,
    model_options,
    open_file,
    threads_option,
    usable_threads,
)
from llamina.cli.terminal import Meter, note, overwrite

Function = TypeVar("Function", bound=Callable[..., Any])
ANY, SEVERAL = click.IntRange(min=1), click.IntRange(min=2)


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers separated by commas."""

    name = "N,…"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            counts = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers such as 1,8,32", param, ctx)
        if min(counts) < self._least:
            self.fail(f"{min(counts)} is less than {self._least}", param, ctx)
        return counts


class Part(click.ParamType):  # type: ignore[type-arg]
    """A percentage, with its sign or without."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            percent = float(str(value).removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a percentage such as 5%", param, ctx)
        if not 0 <= percent < 100:
            self.fail(f"{value} is not between 0% and 100%", param, ctx)
        return percent / 100


def output_options(function: Function) -> Function:
    """`-r`, `--json`, `--md`, `--baseline` and `--threshold`."""
    options = [
        click.option("-r", "--repeats", type=ANY, metavar="N", default=5, show_default=True, help="Runs of each test."),
        json_option,
        click.option("--md", "as_markdown", is_flag=True, help="Print a Markdown table."),
        click.option(
            "--baseline",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Compare with an earlier --json output: exit code 1 if a rate fell.",
        ),
        click.option("--threshold", type=Part(), default="5%", show_default=True, help="By how much a rate may fall."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


against_option = click.option(
    "--against",
    type=click.Choice(["llama.cpp", "llama-cpp-python", "xllamacpp", "llama-server"]),
    help="Measure llama.cpp too, run by run in turns with llamina, with the flags that are fastest for it.",
)


@click.group("bench", invoke_without_command=True)
@model_options
@click.option(
    "-p",
    "--prompt-tokens",
    "prompts",
    type=Counts(0),
    default="512",
    show_default=True,
    help="Prompt lengths in tokens.",
)
@click.option(
    "-n", "--gen-tokens", "generates", type=Counts(0), default="128", show_default=True, help="Tokens to generate."
)
@click.option(
    "-b", "--batch", "batches", type=Counts(1), default="1", show_default=True, help="Batch sizes: sequences at a time."
)
@click.option(
    "-d", "--depth", "depths", type=Counts(0), default="0", show_default=True, help="Tokens in the KV cache before."
)
@threads_option
@kv_option
@against_option
@click.option(
    "--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a PNG chart of the rates."
)
@output_options
def command(model: str | None, hf: str | None, plot: Path | None, **given: Any) -> int:
    """Measure prompt processing (pp) and token generation (tg) of a model, and its memory.

    -p, -n, -b and -d take several numbers separated by commas. Tokens are random with a fixed seed; rates are medians
    of -r runs. `first token` is the time for the whole prompt, GB/s the bytes of weights read per second of generation
    (of experts only those used), GMAC/s the multiply-adds with weights per second of prompt processing.

    \b
    Examples:
      llamina bench -m model.gguf
      llamina bench -m smollm2 -p 512 -n 128 -b 1,8,32 -d 0,4096
      llamina bench -m model.gguf --against llama.cpp --md
      llamina bench -m model.gguf --json > before.json
      llamina bench -m model.gguf --baseline before.json --threshold 5%
      llamina bench kernels --format Q4_K
      llamina bench serve -m model.gguf
    """
    if click.get_current_context().invoked_subcommand:
        return 0
    from llamina.bench import find_peer
    from llamina.bench.plot import check_plot, draw_plot
    from llamina.cli.rates import model_notes, model_table

    earlier = _baseline(given["baseline"])
    peer = find_peer(given["against"]) if given["against"] else None
    if plot:
        check_plot()
    record = _measure(_model(model, hf), peer, given)
    if plot:
        draw_plot(record, plot)
    _print(record, model_table, model_notes, given)
    return _gate(record, earlier, given["threshold"])


@command.command("serve")
@model_options
@click.option("-c", "--requests", type=SEVERAL, metavar="N", default=16, show_default=True, help="Requests at a time.")
@click.option(
    "-p",
    "--prompt-tokens",
    "prompt",
    type=ANY,
    metavar="N",
    default=32,
    show_default=True,
    help="Prompt tokens of each.",
)
@click.option(
    "-n",
    "--gen-tokens",
    "tokens",
    type=SEVERAL,
    metavar="N",
    default=128,
    show_default=True,
    help="Tokens that each generates.",
)
@click.option(
    "--prefix",
    type=click.IntRange(16, 1 << 20),
    metavar="N",
    default=2000,
    show_default=True,
    help="Tokens of the first turn.",
)
@threads_option
@kv_option
@against_option
@output_options
def serve_command(model: str | None, hf: str | None, **given: Any) -> int:
    """Measure what matters when serving many requests.

    Batching: requests at a time against one after the other. Prefix caching: time to first token of a second turn
    against the first. Grammars: the time of a token mask, and constrained answers against plain ones. Speculative
    decoding: answers with draft tokens against answers without.

    \b
    Examples:
      llamina bench serve -m smollm2
      llamina bench serve -m model.gguf -c 32 -n 64 --md
      llamina bench serve -m model.gguf --against llama-server
    """
    from llamina.bench import Load, Options, find_peer, measure_serving
    from llamina.cli.rates import model_notes, serving_table

    earlier = _baseline(given["baseline"])
    peer = find_peer(given["against"], serving=True) if given["against"] else None
    asked = Load(given["requests"], given["prompt"], given["tokens"], given["prefix"])
    options = Options([], given["threads"] or cores(), given["repeats"], given["kv_type"], peer)
    with Ticker() as tick:
        record = measure_serving(_model(model, hf), asked, options, _command_line(), tick, tick.compiling)
    _print(record, serving_table, model_notes, given)
    return _gate(record, earlier, given["threshold"])


@command.command("kernels")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="A format such as Q4_K; all unless given. May be repeated.",
)
@click.option("-t", "--threads", type=Counts(1), help="Numbers of threads; 1 and all usable cores unless given.")
@click.option(
    "--size",
    type=click.FloatRange(min=0),
    metavar="MB",
    default=64.0,
    show_default=True,
    help="MB of weights of the GEMV.",
)
@click.option(
    "-p",
    "--tokens",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=512,
    show_default=True,
    help="Tokens of the GEMM.",
)
@output_options
def kernels_command(formats: tuple[str, ...], threads: tuple[int, ...] | None, **given: Any) -> int:
    """Measure the matrix products of each format.

    GB/s of weights read by the GEMV (one token), GMAC/s of the GEMM (many tokens).

    \b
    Examples:
      llamina bench kernels
      llamina bench kernels --format Q4_K --format Q6_K -t 1,2,4
      llamina bench kernels --json > kernels.json
      llamina bench kernels --baseline kernels.json --threshold 10%
    """
    from llamina.bench import measure_kernels
    from llamina.bench.kernels import Sizes
    from llamina.cli.rates import kernel_notes, kernel_table

    earlier = _baseline(given["baseline"])
    counts = dict.fromkeys(map(usable_threads, threads) if threads else (1, cores()))
    sizes = Sizes(int(given["size"] * 1e6), given["tokens"], given["repeats"])
    with Ticker() as tick:
        record = measure_kernels(formats, list(counts), sizes, _command_line(), tick, tick.compiling)
    _print(record, kernel_table, kernel_notes, given)
    return _gate(record, earlier, given["threshold"])


def _model(model: str | None, hf: str | None) -> Path:
    """The file of the model to measure."""
    path = locate(model, hf)
    open_file(path)  # mistakes are told before any process is started
    return path


def _measure(path: Path, peer: Any, given: dict[str, Any]) -> dict[str, Any]:
    from llamina.bench import Options, grid, measure_model

    tasks = grid(given["prompts"], given["generates"], given["batches"], given["depths"])
    options = Options(tasks, given["threads"] or cores(), given["repeats"], given["kv_type"], peer)
    with Ticker() as tick:
        return measure_model(path, options, _command_line(), tick, tick.compiling)


def _command_line() -> str:
    return shlex.join(["llamina", *sys.argv[1:]])


def _print(record: dict[str, Any], table: Any, notes: Any, given: dict[str, Any]) -> None:
    if given["as_json"]:
        click.echo(json.dumps(record, indent=2, ensure_ascii=False))
    elif given["as_markdown"]:
        click.echo("\n".join([table(record).markdown(), "", *(f"- {line}" for line in notes(record))]))
    else:
        table(record).show()
        for line in notes(record):
            click.echo(line)


def _baseline(path: Path | None) -> dict[str, Any] | None:
    """The earlier record, read before anything is measured. Raises UsageError if it is none."""
    if path is None:
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["results"], record["machine"]["cpu"]
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{path} is not the output of `llamina bench --json`") from None
    return record


def _gate(record: dict[str, Any], earlier: dict[str, Any] | None, threshold: float) -> int:
    """Say which rates fell by more than the threshold; the exit code, 1 if any did."""
    if earlier is None:
        return 0
    from llamina.bench import changed_conditions, regressions

    for line in changed_conditions(record, earlier):
        note(f"the baseline was measured under other conditions: {line}")
    fallen = regressions(record, earlier, threshold)
    for fall in fallen:
        click.secho(
            f"{fall.name} fell by {fall.part:.1%}: {fall.before:.1f} → {fall.now:.1f} {fall.unit}", err=True, fg="red"
        )
    if not fallen:
        note(f"no rate fell by more than {threshold:.1%}")
    return 1 if fallen else 0


class Ticker:
    """What is being measured: on a terminal one line that is overwritten, elsewhere only that kernels are compiled.

    No bar: drawing it would take time from what is measured.
    """

    def __init__(self) -> None:
        self._meter = Meter("kernels")
        self._live = sys.stderr.isatty()

    def __enter__(self) -> "Ticker":
        return self

    def __call__(self, what: str) -> None:
        if self._live:
            overwrite(f"{what} …")

    def compiling(self, kernel: str, done: int, total: int) -> None:
        """The progress of loading a model."""
        if not self._live:
            self._meter(kernel, done, total)
        elif done < total:
            self(f"compiling {kernel} ({done + 1} of {total})")

    def __exit__(self, *error: object) -> None:
        if self._live:
            overwrite("")
