"""`llamina verify`: whether a GGUF file is sound."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from llamina.cli.options import complete_model, find_file, json_option
from llamina.cli.terminal import Meter, bytes_text, note, tidy


@click.command("verify")
@click.argument("model", metavar="FILE|NAME", shell_complete=complete_model)
@click.option(
    "--manifest", type=click.Path(path_type=Path), help="Compare with hashes that `llamina hash` or sha256sum printed."
)
@click.option("--sha256", is_flag=True, help="Compare the SHA-256 with the catalogue's or the Hugging Face Hub's.")
@click.option("--values/--no-values", default=True, show_default=True, help="Look for NaN and infinity in all tensors.")
@click.option(
    "--hashes/--no-hashes",
    default=True,
    show_default=True,
    help="Compare tensors with the hashes that the file lists (general.tensor_hashes).",
)
@click.option(
    "--write-hashes",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="Also write a copy to OUT that lists the hashes of its tensors, unless something is wrong.",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite OUT if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print mistakes only.")
@json_option
def command(
    model: str,
    manifest: Path | None,
    sha256: bool,
    values: bool,
    hashes: bool,
    out: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check a GGUF file, or all shards of a model.

    Its header; that tensors are aligned, inside the file, and do not overlap; that no scale or value is NaN or
    infinite; that the architecture has all tensors it asks for; the hashes that the file itself lists. The exit code is
    1 if something is wrong.

    \b
    Examples:
      llamina verify model.gguf
      llamina hash model.gguf > model.manifest; llamina verify model.gguf --manifest model.manifest
      llamina verify smollm2 --sha256
      llamina verify model.gguf --write-hashes model-hashed.gguf
      llamina verify big.gguf --no-values --json
    """
    from llamina.files import verify, write_hashes
    from llamina.gguf.writer import check_output

    path = find_file(model)
    if out is not None:
        check_output(out, force, path)
    with tidy(), Meter("bytes", quiet or as_json, doing="reading") as meter:
        report = verify(path, values=values, hashes=hashes, sha256=sha256, manifest=manifest, progress=meter)
    if out is not None and report.sound:
        with tidy(), Meter("bytes", quiet or as_json, doing="writing") as meter:
            write_hashes(path, out, overwrite=force, progress=meter)
    if as_json:
        facts = {"file": str(path), "sound": report.sound, **asdict(report)}
        del facts["path"]
        click.echo(json.dumps(facts | ({"written": str(out)} if out and report.sound else {}), indent=2))
        return int(not report.sound)
    for name, digest in () if quiet else report.sha256.items():
        click.echo(f"{digest}  {name}")
    for line in () if quiet else report.notes:
        note(line)
    for mistake in report.mistakes:
        click.secho(mistake, fg="red")
    if report.sound and not quiet:
        compared = f", {report.hashes} hashes as expected" if report.hashes else ""
        click.echo(f"{path} is sound: {report.tensors} tensors, {bytes_text(report.bytes)}{compared}")
    return int(not report.sound)
