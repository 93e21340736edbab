"""`llamina bench`: how fast models and kernels run here, alone or against llama.cpp."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llamina.cli.options import json_option, kv_option, locate, model_options
from llamina.cli.terminal import Meter, note

Function = TypeVar("Function", bound=Callable[..., Any])
ANY, SEVERAL = click.IntRange(min=1), click.IntRange(min=2)


class Counts(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers with commas between them."""

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
    """`-r`, `--json`, `--md`, and the gate."""
    options = [
        click.option("-r", "--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each."),
        json_option,
        click.option("--md", "as_markdown", is_flag=True, help="Print a Markdown table."),
        click.option(
            "--baseline",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="An earlier --json record: exit with 1 if a rate fell.",
        ),
        click.option("--threshold", type=Part(), default="5%", show_default=True, help="By how much it may fall."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


threads_option = click.option(
    "-t", "--threads", type=click.IntRange(min=1), envvar="LLAMINA_THREADS", metavar="N", help="Threads; all cores."
)
against_option = click.option(
    "--against",
    type=click.Choice(["llama.cpp", "llama-cpp-python", "xllamacpp", "llama-server"]),
    help="Run llama.cpp in turns with llamina, with its fastest flags.",
)


@click.group("bench", invoke_without_command=True)
@model_options
@click.option(
    "-p", "--prompt-tokens", "prompts", type=Counts(0), default="512", show_default=True, help="Prompt lengths."
)
@click.option(
    "-n", "--gen-tokens", "generates", type=Counts(0), default="128", show_default=True, help="Tokens to make."
)
@click.option(
    "-b", "--batch", "batches", type=Counts(1), default="1", show_default=True, help="Sequences side by side."
)
@click.option(
    "-d", "--depth", "depths", type=Counts(0), default="0", show_default=True, help="Tokens already in the cache."
)
@threads_option
@kv_option
@against_option
@click.option(
    "--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Draw the rates into a PNG."
)
@output_options
def command(model: str | None, hf: str | None, plot: Path | None, **given: Any) -> int:
    """Measure how fast a model reads prompts (pp) and generates (tg), and what memory it takes.

    Tokens are random from a fixed seed; rates are medians. `first token` is the time of the whole prompt, GB/s are
    bytes of weights read in generation (of experts only those used), GMAC/s products with weights in a prompt.

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
    record = _measure(locate(model, hf), peer, given)
    if plot:
        draw_plot(record, plot)
    _print(record, model_table, model_notes, given)
    return _gate(record, earlier, given["threshold"])


@command.command("serve")
@model_options
@click.option("-c", "--requests", type=SEVERAL, default=16, show_default=True, help="At a time.")
@click.option("-p", "--prompt-tokens", "prompt", type=ANY, default=32, show_default=True, help="Of each request.")
@click.option("-n", "--gen-tokens", "tokens", type=SEVERAL, default=128, show_default=True, help="Of each request.")
@click.option(
    "--prefix", type=click.IntRange(16, 1 << 20), default=2000, show_default=True, help="Tokens of a first turn."
)
@threads_option
@kv_option
@against_option
@output_options
def serve_command(model: str | None, hf: str | None, **given: Any) -> int:
    """Measure how an engine serves many.

    Requests together beside one after the other; the first token of a second turn beside that of the first; masks of
    grammars, and answers that follow them beside plain ones; answers with tokens guessed ahead beside those without.

    \b
    Examples:
      llamina bench serve -m smollm2
      llamina bench serve -m model.gguf -c 32 -n 64 --md
      llamina bench serve -m model.gguf --against llama-server
    """
    from llamina.backends.host import usable_cores
    from llamina.bench import Load, Options, find_peer, measure_serving
    from llamina.cli.rates import model_notes, serving_table

    earlier = _baseline(given["baseline"])
    peer = find_peer(given["against"], serving=True) if given["against"] else None
    asked = Load(given["requests"], given["prompt"], given["tokens"], given["prefix"])
    options = Options([], given["threads"] or usable_cores(), given["repeats"], given["kv_type"], peer)
    with Ticker() as tick:
        record = measure_serving(locate(model, hf), asked, options, _command_line(), tick, tick.compiling)
    _print(record, serving_table, model_notes, given)
    return _gate(record, earlier, given["threshold"])


@command.command("kernels")
@click.option("--format", "formats", multiple=True, metavar="NAME", help="Q4_K and so on; all unless given.")
@click.option("-t", "--threads", type=Counts(1), help="Numbers of threads; 1 and all cores unless given.")
@click.option(
    "--size", type=click.FloatRange(min=0), default=64.0, show_default=True, help="MB of weights for one token."
)
@click.option(
    "-p", "--tokens", type=click.IntRange(1, 4096), default=512, show_default=True, help="Tokens, where many."
)
@output_options
def kernels_command(formats: tuple[str, ...], threads: tuple[int, ...] | None, **given: Any) -> int:
    """Measure each format's matrix product: GB/s for one token, GMAC/s for many.

    \b
    Examples:
      llamina bench kernels
      llamina bench kernels --format Q4_K --format Q6_K -t 1,2,4
      llamina bench kernels --json > kernels.json
      llamina bench kernels --baseline kernels.json --threshold 10%
    """
    from llamina.backends.host import usable_cores
    from llamina.bench import measure_kernels
    from llamina.bench.kernels import Sizes
    from llamina.cli.rates import kernel_notes, kernel_table

    earlier = _baseline(given["baseline"])
    counts = threads or tuple(dict.fromkeys((1, usable_cores())))
    sizes = Sizes(int(given["size"] * 1e6), given["tokens"], given["repeats"])
    with Ticker() as tick:
        record = measure_kernels(formats, counts, sizes, _command_line(), tick, tick.compiling)
    _print(record, kernel_table, kernel_notes, given)
    return _gate(record, earlier, given["threshold"])


def _measure(path: Path, peer: Any, given: dict[str, Any]) -> dict[str, Any]:
    from llamina.backends.host import usable_cores
    from llamina.bench import Options, grid, measure_model

    tasks = grid(given["prompts"], given["generates"], given["batches"], given["depths"])
    options = Options(tasks, given["threads"] or usable_cores(), given["repeats"], given["kv_type"], peer)
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
    """Read before anything is measured."""
    if path is None:
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["results"], record["machine"]["cpu"]
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{path} is not a record of `llamina bench --json`") from None
    return record


def _gate(record: dict[str, Any], earlier: dict[str, Any] | None, threshold: float) -> int:
    """1 if a rate fell by more than the threshold."""
    if earlier is None:
        return 0
    from llamina.bench import falls, strangers

    for line in strangers(record, earlier):
        note(f"the baseline was measured otherwise: {line}")
    fallen = falls(record, earlier, threshold)
    for fall in fallen:
        click.secho(
            f"{fall.name} fell by {fall.part:.1%}: {fall.before:.1f} → {fall.now:.1f} {fall.unit}", err=True, fg="red"
        )
    if not fallen:
        note(f"no rate fell by more than {threshold:.1%}")
    return 1 if fallen else 0


class Ticker:
    """What is under way: on a terminal one line that is written over, elsewhere only that kernels are compiled.

    No bar: what draws it would take time from what is measured.
    """

    def __init__(self) -> None:
        self._meter = Meter("kernels")

    def __enter__(self) -> "Ticker":
        return self

    def __call__(self, what: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[2K{what} …", err=True, nl=False)

    def compiling(self, kernel: str, done: int, total: int) -> None:
        """The progress of a load."""
        if not sys.stderr.isatty():
            self._meter(kernel, done, total)
        elif done < total:
            self(f"compiling {kernel} ({done + 1} of {total})")

    def __exit__(self, *error: object) -> None:
        if sys.stderr.isatty():
            click.echo("\r\x1b[2K", err=True, nl=False)
