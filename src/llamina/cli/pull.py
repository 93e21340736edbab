"""`llamina pull`: a model onto this machine."""

import click

from llamina.cli.options import complete_model, offline_option
from llamina.cli.terminal import Meter, bytes_text, note


@click.command("pull")
@click.argument("name", shell_complete=complete_model)
@click.option("--file", metavar="FILE", help="The file of the repository, instead of a quantization.")
@click.option("--revision", metavar="REV", help="A branch, tag or commit of the repository.  [default: main]")
@click.option("--force", is_flag=True, help="Fetch it also if it is here.")
@click.option("--verify-sha256", "sha256", metavar="HEX", help="The SHA-256 that the file must have.")
@click.option("--mmproj/--no-mmproj", default=True, help="Whether the repository's picture encoder is fetched, too.")
@offline_option
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
def command(
    name: str, file: str | None, revision: str | None, force: bool, sha256: str | None, mmproj: bool, quiet: bool
) -> None:
    """Fetch the model NAME, and print the path of its file.

    NAME is a short name (`llamina list --all` has them), a Hugging Face repository as user/repo[:quant], or the address
    of a GGUF file. All shards of a model are fetched, and the picture encoder (mmproj) that its repository has. What is
    here already is not fetched again unless it is damaged or has changed, and a transfer that broke goes on where it
    ended. A file gets its name when its size and SHA-256 are right. HF_TOKEN is for private repositories.

    \b
    Examples:
      llamina pull smollm2
      llamina pull user/repo:Q8_0
      llamina pull user/repo --file model-Q8_0.gguf --revision v1.0
      llamina pull https://example.com/model.gguf --verify-sha256 1d96…
    """
    from llamina import hub

    with Meter("bytes", quiet) as meter:
        path = hub.pull(name, meter, file=file, revision=revision, force=force, sha256=sha256, mmproj=mmproj)
    if not quiet:
        model = hub.Model(name, path)
        note(f"{name} is here: {bytes_text(model.size)}")
        if model.entry and model.entry.kind == "base":
            note(f"{name} is a base model: it continues text, and was not trained to answer")
    click.echo(path)
