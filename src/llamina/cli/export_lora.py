"""`llamina export-lora`: LoRA adapters merged into a model."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import complete_model, find_file, json_option, lora_option, threads_option
from llamina.cli.terminal import Meter, bytes_text, note, tidy


@click.command("export-lora")
@click.option(
    "-m", "--model", required=True, metavar="FILE|NAME", shell_complete=complete_model, help="The model to merge into."
)
@lora_option
@click.option(
    "-o", "--output", "out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file to write."
)
@click.option(
    "--type",
    "kind",
    metavar="TYPE",
    help="Quantize the model to this type of `llamina quantize`, such as bf16 or q4_k_m; by default merged matrices "
    "are F16, or F32 if they were, and all others stay as they are.",
)
@click.option("--imatrix", type=click.Path(path_type=Path), help="Importance matrix, which types below Q3_K need.")
@click.option("--allow-requantize", "requantize", is_flag=True, help="Quantize what is quantized already.")
@click.option("-f", "--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@threads_option
@json_option
def command(
    model: str, adapters: dict[str, float], out: Path, kind: str | None, force: bool, quiet: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Merge LoRA adapters into a model, and print the path of the new file.

    Adapters are GGUF files or PEFT's folders, each times its scale. The file appears when it is complete.

    \b
    Examples:
      llamina export-lora -m model.gguf --lora adapter.gguf -o merged.gguf
      llamina export-lora -m model-F16.gguf --lora a.gguf=0.5 --lora b.gguf -o merged.gguf --type q4_k_m
    """
    from llamina.files import export_lora

    if not adapters:
        raise click.UsageError("there is no adapter to merge: give --lora")
    silent = quiet or as_json
    with tidy(), Meter("parts", silent) as compiling, Meter("bytes", silent, doing="writing") as writing:
        made = export_lora(
            find_file(model), adapters, out, type=kind, overwrite=force, progress=writing, compiling=compiling,
            **options,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(asdict(made) | {"path": str(made.path)}, indent=2, ensure_ascii=False))
        return
    for line in () if quiet else made.notes:
        note(line)
    if not quiet:
        note(f"merged into {len(made.merged)} matrices: {made.type}, {bytes_text(made.path.stat().st_size)}")
    click.echo(made.path)
