"""`llamina auto-quantize`: a GGUF file in as many bits as are wanted, where they help most."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import decode
from llamina.cli.quantizing import file_arguments, print_json, sizes_text, writing_options
from llamina.cli.table import Table
from llamina.cli.terminal import Meter, bytes_text, note, tidy


def _target(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        bits = float(value.lower().removesuffix("bpw"))
    except ValueError:
        bits = 0.0
    if not 1 <= bits <= 32:
        raise click.BadParameter(f"{value!r} is not a number of bits per weight from 1 to 32, such as 4.2bpw")
    return bits


def _types(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    from llamina.quantization.types import writable

    names = [name.strip() for name in (value or "").split(",") if name.strip()]
    return [writable(name, "types").name for name in names]


@click.command("auto-quantize")
@file_arguments
@click.option("--target", required=True, metavar="BITS", callback=_target, help="Most bits per weight, such as 4.2bpw.")
@click.option("--imatrix", type=click.Path(path_type=Path), help="Importance matrix; types of two bits need it.")
@click.option(
    "--text",
    type=click.File("rb"),
    help="Measure on this text which matrices matter most, by damaging some at a time; takes a while.",
)
@click.option(
    "--chunks", type=click.IntRange(min=1), default=2, show_default=True, help="With --text: windows of 512 tokens."
)
@click.option("--types", metavar="TYPE,…", callback=_types, help="Choose from these types only.")
@writing_options
def command(
    source: Path,
    out: Path,
    target: float,
    imatrix: Path | None,
    text: Any,
    chunks: int,
    dry_run: bool,
    force: bool,
    quiet: bool,
    threads: int | None,
    as_json: bool,
    requantize: bool,
    **wanted: Any,
) -> None:
    """Write the GGUF file IN to OUT in at most --target bits per weight, and print the path of the file.

    Each tensor gets the type that the budget does most for: what errors the types make is measured on the tensor
    itself, with its columns weighed by --imatrix. How much errors matter is measured by --text; without it, it is what
    is usual for matrices of a kind.

    \b
    Examples:
      llamina auto-quantize model-F16.gguf model.gguf --target 4.2bpw --imatrix imatrix.gguf
      llamina auto-quantize model-F16.gguf model.gguf --target 4.2bpw --imatrix imatrix.gguf --text calibration.txt
      llamina auto-quantize model-F16.gguf model.gguf --target 5 --types q4_k,q5_k,q6_k --dry-run
    """
    from llamina.gguf import open_model
    from llamina.gguf.writer import check_output
    from llamina.quantization import Imatrix, choose_types, plan, quantize
    from llamina.quantization.write import Quantized

    silent, known = quiet or as_json, Imatrix.read(imatrix) if imatrix else None
    wanted["overrides"] = list(wanted["overrides"].items())
    with open_model(source) as file, tidy(), Meter("parts", silent) as compiling:
        if not dry_run:
            check_output(out, force, source)
        if text:
            read = decode(text.read(), text.name).removesuffix("\n")
            wanted["sensitivities"] = _sensitivities(file, read, known, chunks, threads, silent)
        with Meter("tensors", silent, doing="measuring") as measuring:
            chosen = choose_types(
                file, target, imatrix=known, requantize=requantize, threads=threads, compiling=compiling,
                progress=lambda name, done, total: measuring("errors", done, total), **wanted,
            )  # fmt: skip
        if dry_run:
            changes = plan(file, chosen.mix, imatrix=known, options=chosen.options, requantize=requantize)
            made = Quantized(out, chosen.mix, changes, ())
        else:
            with Meter("bytes", silent, doing="writing") as writing:
                made = quantize(
                    file, out, chosen.mix, imatrix=known, options=chosen.options, requantize=requantize,
                    threads=threads, overwrite=force, progress=writing, compiling=compiling,
                )  # fmt: skip
    _tell(made, chosen, dry_run, quiet, as_json)


def _sensitivities(
    file: Any, text: str, imatrix: Any, chunks: int, threads: int | None, quiet: bool
) -> dict[str, float]:
    from llamina.bench.sensitivity import measure_sensitivities

    with Meter("tensors", quiet, doing="measuring") as meter:
        return measure_sensitivities(
            file, text, imatrix=imatrix, chunks=chunks, threads=threads, backend="cpu",
            progress=lambda name, done, total: meter("the sensitivity of groups of tensors", done, total),
        )  # fmt: skip


def _tell(made: Any, chosen: Any, dry_run: bool, quiet: bool, as_json: bool) -> None:
    if as_json:
        print_json(made, lambda change: {"error": chosen.errors.get(change.name)})
        return
    if dry_run:
        rows = [
            [c.name, "x".join(map(str, c.shape)), c.after.name, bytes_text(c.nbytes), f"{chosen.errors[c.name]:.2e}"]
            for c in made.changes
            if c.name in chosen.errors
        ]
        Table(["tensor", "shape", "type", "size", "error"], rows).show()
    if not quiet or dry_run:
        counts = Counter(c.after.name for c in made.changes if c.name in chosen.types)
        note(", ".join(f"{count} x {name}" for name, count in counts.most_common()))
        note(sizes_text(made, 3))
    if not dry_run:
        click.echo(made.path)
