"""`llamina convert`: from a Hugging Face folder, or a safetensors file, to a GGUF file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import json_option, threads_option
from llamina.cli.terminal import Meter, bytes_text, count_text, note, tidy


@click.command("convert")
@click.argument("source", metavar="FOLDER|FILE", type=click.Path(path_type=Path))
@click.argument("out", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The same as OUT; by default the name of FOLDER or FILE and the type, in the current folder.",
)
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    help="f32, f16, bf16, q8_0, or any type of `llamina quantize`, such as q4_k_m; by default the one in which most "
    "matrices are stored.",
)
@click.option("--imatrix", type=click.Path(path_type=Path), help="Importance matrix, which types below Q3_K need.")
@click.option("--pre", metavar="NAME", help="Name of the pre-tokenizer, if it is not recognized.")
@click.option(
    "--mmproj", is_flag=True, help="Convert the encoder of pictures or sounds, to a file beside the text model's."
)
@click.option("-f", "--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@threads_option
@json_option
def command(
    source: Path,
    out: Path | None,
    output: Path | None,
    kind: str | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert FOLDER (config.json, safetensors, a tokenizer) to the GGUF file OUT, and print the path of the file.

    Instead, a FILE of safetensors may be given, with the rest beside it. The file appears when it is complete. One
    tensor at a time is in memory.

    \b
    Examples:
      llamina convert Qwen3-0.6B
      llamina convert Qwen3-0.6B qwen3.gguf --type q4_k_m
      llamina convert Qwen3-0.6B/tuned.safetensors
      llamina convert Qwen2-VL-2B-Instruct --mmproj
    """
    from llamina.convert import convert

    if out is not None and output is not None:
        raise click.UsageError("the file to write is given twice: as an argument and with -o")
    silent = quiet or as_json
    with tidy(), Meter("parts", silent) as compiling, Meter("bytes", silent, doing="writing") as writing:
        options |= {"progress": writing, "compiling": compiling}
        made = convert(source, out or output, type=kind, overwrite=force, **options)
    if as_json:
        click.echo(json.dumps(asdict(made) | {"path": str(made.path)}, indent=2, ensure_ascii=False))
        return
    for line in () if quiet else made.notes:
        note(line)
    if not quiet:
        parameters = count_text(made.parameters)
        note(f"{made.architecture}, {parameters} parameters in {made.type}: {bytes_text(made.bytes)}")
    click.echo(made.path)
