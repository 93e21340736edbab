"""`llamina convert`: from a Hugging Face folder to a GGUF file."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from llamina.cli.options import json_option
from llamina.cli.terminal import Meter, bytes_text, count_text, note, tidy


@click.command("convert")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; by default FOLDER's name and the type, in the current folder.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["f32", "f16", "bf16", "q8_0"]),
    help="Format of the matrices; by default the one they are stored in.",
)
@click.option("--pre", metavar="NAME", help="Name of the pre-tokenizer, if it is not recognized.")
@click.option("--mmproj", is_flag=True, help="Convert the encoder of pictures, to a file beside the text model's.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@json_option
def command(
    folder: Path,
    output: Path | None,
    kind: str | None,
    pre: str | None,
    mmproj: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Convert FOLDER (config.json, safetensors, a tokenizer) to GGUF, and print the path of the file.

    The file appears when it is complete. One tensor at a time is in memory.

    \b
    Examples:
      llamina convert Qwen3-0.6B
      llamina convert Qwen3-0.6B -o qwen3.gguf --type q8_0
      llamina convert Qwen2-VL-2B-Instruct --mmproj
    """
    from llamina.convert import convert

    with tidy(), Meter("bytes", quiet or as_json, doing="writing") as meter:
        made = convert(folder, output, type=kind, pre=pre, mmproj=mmproj, overwrite=force, progress=meter)
    if as_json:
        click.echo(json.dumps(asdict(made) | {"path": str(made.path)}, indent=2, ensure_ascii=False))
        return
    for line in () if quiet else made.notes:
        note(line)
    if not quiet:
        parameters = count_text(made.parameters)
        note(f"{made.architecture}, {parameters} parameters in {made.type}: {bytes_text(made.bytes)}")
    click.echo(made.path)
