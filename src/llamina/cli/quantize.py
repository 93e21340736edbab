"""`llamina quantize`: a GGUF file in fewer bits."""

from pathlib import Path
from typing import Any

import click

from llamina.cli.quantizing import file_arguments, print_json, sizes_text, writing_options
from llamina.cli.table import Table
from llamina.cli.terminal import Meter, bytes_text, note, tidy


@click.command("quantize")
@file_arguments
@click.argument("kind", metavar="TYPE")
@click.option("--imatrix", type=click.Path(path_type=Path), help="Importance matrix, which types below Q3_K need.")
@click.option("--pure", is_flag=True, help="One type for all tensors instead of TYPE's mix.")
@click.option("--output-tensor-type", "output_type", metavar="TYPE", help="Type of output.weight.")
@click.option("--token-embedding-type", "embedding_type", metavar="TYPE", help="Type of token_embd.weight.")
@click.option("--leave-output-tensor", "keep_output", is_flag=True, help="Leave output.weight as it is.")
@writing_options
def command(
    source: Path,
    out: Path,
    kind: str,
    imatrix: Path | None,
    requantize: bool,
    dry_run: bool,
    force: bool,
    quiet: bool,
    threads: int | None,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Write the GGUF file IN to OUT, quantized to TYPE, and print the path of the file.

    TYPE is a file type of llama.cpp: Q4_K_M, Q8_0, IQ3_S, … The file appears when it is complete.

    \b
    Examples:
      llamina quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M
      llamina quantize model-F16.gguf model-IQ2_XS.gguf IQ2_XS --imatrix imatrix.gguf
      llamina quantize model-F16.gguf model.gguf Q4_K_M --tensor-type ffn_down=q6_k --dry-run
    """
    from llamina.quantization import Imatrix, Options, plan, quantize
    from llamina.quantization.types import file_type
    from llamina.quantization.write import Quantized, notes_on

    wanted["overrides"] = list(wanted["overrides"].items())
    options, known = Options(**wanted), Imatrix.read(imatrix) if imatrix else None
    if dry_run:
        changes = plan(source, kind, imatrix=known, options=options, requantize=requantize)
        made = Quantized(out, file_type(kind), changes, notes_on(changes, known))
        _show(made, as_json)
        return
    silent = quiet or as_json
    with tidy(), Meter("parts", silent) as compiling, Meter("bytes", silent, doing="writing") as writing:
        made = quantize(
            source,
            out,
            kind,
            imatrix=known,
            options=options,
            requantize=requantize,
            threads=threads,
            overwrite=force,
            progress=writing,
            compiling=compiling,
        )
    if as_json:
        _show(made, as_json)
        return
    for line in () if quiet else made.notes:
        note(line)
    if not quiet:
        note(_sizes(made))
    click.echo(made.path)


def _sizes(made: Any) -> str:
    return f"{made.type}: {sizes_text(made, 2)}"


def _show(made: Any, as_json: bool) -> None:
    if as_json:
        print_json(made, lambda change: {"needs_imatrix": change.needs_imatrix}, notes=list(made.notes))
        return
    rows = [
        [c.name, "x".join(map(str, c.shape)), c.before.name, c.after.name, bytes_text(c.nbytes)] for c in made.changes
    ]
    Table(["tensor", "shape", "from", "to", "size"], rows).show()
    for line in (*made.notes, _sizes(made)):
        note(line)
    if needy := [c.name for c in made.changes if c.needs_imatrix]:
        note(f"{len(needy)} tensors need an importance matrix ({needy[0]})")
