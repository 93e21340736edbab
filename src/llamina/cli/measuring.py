"""What the verbs of `llamina bench` have in common: options, records and their output, the gate."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from llamina.cli.options import locate, model_options, open_file
from llamina.cli.terminal import Meter, note, overwrite

Function = TypeVar("Function", bound=Callable[..., Any])
ANY = click.IntRange(min=1)
FORMATS = {"--json": "as_json", "--md": "as_markdown", "--csv": "as_csv"}


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


class Rates(click.ParamType):  # type: ignore[type-arg]
    """Positive numbers separated by commas."""

    name = "X,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        try:
            rates = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0.5,1,2", param, ctx)
        if not all(0 < rate < 1e6 for rate in rates):
            self.fail(f"{value}: rates must be above 0 and below 1e6", param, ctx)
        return rates


class Names(click.ParamType):  # type: ignore[type-arg]
    """Words separated by commas."""

    name = "NAME,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(part.strip().lower() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} is not a list of names such as avx2,avx512", param, ctx)
        return names


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


def _one_format(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    other = [flag for flag, name in FORMATS.items() if ctx.params.get(name) and name != param.name]
    if value and other:
        raise click.UsageError(f"{other[0]} and {param.opts[0]} are given: give one of them")
    return value


def format_options(function: Function) -> Function:
    """`--json`, `--md` and `--csv`, of which one may be given."""
    helps = ("Print JSON.", "Print a Markdown table.", "Print CSV, a row for each result.")
    for (flag, name), told in reversed([*zip(FORMATS.items(), helps, strict=True)]):
        function = click.option(flag, name, is_flag=True, callback=_one_format, help=told)(function)
    return function


def output_options(function: Function) -> Function:
    """`-r`, `--json`, `--md`, `--csv`, `--baseline` and `--threshold`."""
    options = [
        click.option(
            "-r",
            "--repeats",
            "--repetitions",
            "--iterations",
            "repeats",
            type=ANY,
            metavar="N",
            default=5,
            show_default=True,
            help="Runs of each test.",
        ),
        format_options,
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


def length_options(prompt: int, tokens: int, least: int = 1) -> Callable[[Function], Function]:
    """`-p` and `-n` of requests, with these defaults; each generates `least` tokens or more."""

    def add(function: Function) -> Function:
        function = click.option(
            "-n",
            "--gen-tokens",
            "tokens",
            type=click.IntRange(min=least),
            metavar="N",
            default=tokens,
            show_default=True,
            help="Tokens that each generates.",
        )(function)
        return click.option(
            "-p",
            "--prompt-tokens",
            "prompt",
            type=ANY,
            metavar="N",
            default=prompt,
            show_default=True,
            help="Prompt tokens of each.",
        )(function)

    return add


against_option = click.option(
    "--against",
    type=click.Choice(["llama.cpp", "llama-cpp-python", "xllamacpp", "llama-server"]),
    help="Measure llama.cpp too, run by run in turns with llamina, with the flags that are fastest for it.",
)


isa_option = click.option(
    "--isa",
    "isas",
    type=Names(),
    help="Measure instruction sets side by side, each in a process of its own: portable, avx2, avx512, amx.",
)


plot_option = click.option(
    "--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a PNG chart of the results."
)


def measured_options(function: Function) -> Function:
    """`-m`, `-hf` and `--shape`."""
    function = click.option(
        "--shape",
        metavar="NAME[:TYPE]",
        help="In the place of a model: random weights in the shape of a real one, such as llama-3-8b:Q4_K_M. The file "
        "is written to the cache folder once.",
    )(function)
    return model_options(function)


def model_file(model: str | None, hf: str | None, shape: str | None = None) -> Path:
    """The file of the model to measure; of a shape it is written first, unless it is there."""
    if shape:
        if model or hf:
            raise click.UsageError("--shape and a model are given: give one of them")
        return _shape_file(shape)
    path = locate(model, hf)
    open_file(path)  # mistakes are told before any process is started
    return path


def _shape_file(shape: str) -> Path:
    from llamina.bench.synthetic import shape_file

    with Meter("bytes", doing="writing") as writing, Meter("parts") as compiling:
        return shape_file(shape, writing, compiling)


def command_line() -> str:
    return shlex.join(["llamina", *sys.argv[1:]])


def print_record(record: dict[str, Any], table: Any, notes: Any, given: dict[str, Any]) -> None:
    if given["as_json"]:
        click.echo(json.dumps(record, indent=2, ensure_ascii=False))
    elif given["as_csv"]:
        from llamina.bench.rows import csv_text

        click.echo(csv_text(record), nl=False)
    elif given["as_markdown"]:
        click.echo("\n".join([table(record).markdown(), "", *(f"- {line}" for line in notes(record))]))
    else:
        table(record).show()
        for line in notes(record):
            click.echo(line)


def read_baseline(path: Path | None) -> dict[str, Any] | None:
    """The earlier record, read before anything is measured. Raises UsageError if it is none."""
    if path is None:
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["results"], record["machine"]["cpu"]
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{path} is not the output of `llamina bench --json`") from None
    return record


def gate(record: dict[str, Any], earlier: dict[str, Any] | None, threshold: float) -> int:
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
        self._meter = Meter("parts")
        self._live = sys.stderr.isatty()

    def __enter__(self) -> "Ticker":
        return self

    def __call__(self, what: str) -> None:
        if self._live:
            overwrite(f"{what} …")

    def loading(self, what: str, done: int, total: int) -> None:
        """The progress of loading a model."""
        if not self._live:
            self._meter(what, done, total)
        elif done < total:
            self(f"{what} ({done + 1} of {total})")

    def __exit__(self, *error: object) -> None:
        if self._live:
            overwrite("")
