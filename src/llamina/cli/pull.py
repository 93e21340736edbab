"""`llamina pull`: a model onto this machine."""

import click

from llamina.cli.options import complete_model
from llamina.cli.terminal import Meter, bytes_text, note


@click.command("pull")
@click.argument("name", shell_complete=complete_model)
@click.option("--file", metavar="FILE", help="The file of the repository, instead of a quantization.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
def command(name: str, file: str | None, quiet: bool) -> None:
    """Fetch the model NAME, and print the path of its file.

    NAME is a short name (`llamina list --all` has them) or a Hugging Face repository as user/repo[:quant]. What is here
    already is not fetched again unless it is damaged, and a broken transfer goes on where it can.

    \b
    Examples:
      llamina pull smollm2
      llamina pull user/repo:Q8_0
    """
    from llamina import hub

    if file and ":" in name:
        raise click.UsageError(f"{name} names a quantization, and --file a file: give one of them")
    name = f"{name}:{file}" if file else name
    with Meter("bytes", quiet) as meter:
        path = hub.pull(name, meter)
    if not quiet:
        model = hub.Model(name, path)
        note(f"{name} is here: {bytes_text(model.size)}")
        if model.entry and model.entry.kind == "base":
            note(f"{name} is a base model: it continues text, and was not trained to answer")
    click.echo(path)
