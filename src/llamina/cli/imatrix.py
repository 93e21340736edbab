"""`llamina imatrix`: the importance matrix of a model, measured on a text."""

import json
from pathlib import Path
from typing import Any

import click

from llamina.cli.advice import advised
from llamina.cli.llama_cpp import batch_options
from llamina.cli.options import json_option, model_options, threads_option
from llamina.cli.reading import load_model, one_file, whole_text, windows_meter
from llamina.cli.terminal import note, tidy

CHUNK = 512  # tokens, as in llama.cpp


@click.command("imatrix")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("-f", "--file", "other", type=click.File("rb"), help="The text, instead of the argument.")
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="imatrix.gguf",
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--output-format",
    "form",
    type=click.Choice(["gguf", "dat"]),
    default="gguf",
    show_default=True,
    help="Kind of file; dat is llama.cpp's older one.",
)
@click.option(
    "--in-file",
    "known",
    type=click.Path(path_type=Path),
    multiple=True,
    help="An importance matrix to add to; repeatable. Without a text, these are merged.",
)
@click.option("-c", "--ctx-size", "size", type=click.IntRange(min=2), metavar="N", help=f"Tokens of a chunk ({CHUNK}).")
@click.option("--chunks", type=click.IntRange(min=1), metavar="N", help="Compute at most N chunks.")
@click.option(
    "--chunk",
    "--from-chunk",
    "skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Leave out the first N chunks.",
)
@click.option("--process-output", "output", is_flag=True, help="Measure the output matrix, too.")
@click.option("--parse-special", is_flag=True, help="Control tokens in the text are tokens.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print the path only.")
@threads_option
@batch_options
@model_options
@json_option
def command(
    file: Any,
    other: Any,
    out: Path,
    form: str,
    known: tuple[Path, ...],
    force: bool,
    model: str | None,
    hf: str | None,
    threads: int | None,
    step_tokens: int | None,
    size: int | None,
    quiet: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Measure which columns of a model's matrices matter most for the text in FILE, and print the path of the result.

    The text, without one newline at its end, is cut into chunks of -c tokens, each beginning with BOS where the model
    wants it. For each matrix of a layer the squares of what it is multiplied with are added up, of experts each by
    itself: what llama-imatrix writes. `llamina quantize --imatrix` needs it for types of few bits. The CPU computes it.

    \b
    Examples:
      llamina imatrix calibration.txt -m model-F16.gguf -o imatrix.gguf
      llamina imatrix more.txt -m model-F16.gguf --in-file imatrix.gguf -o both.gguf --chunks 100
      llamina imatrix --in-file one.gguf --in-file two.gguf -o merged.gguf
    """
    from llamina.quantization import Imatrix

    file = one_file(file, other)
    if out.exists() and not force:
        raise click.UsageError(f"{out} exists: choose another name with -o, or add --force")
    found = [Imatrix.read(path) for path in known]
    if file or not found:
        text = whole_text(file).removesuffix("\n")
        loading = {"backend": "cpu", "threads": threads, "context": size or CHUNK, "step_tokens": step_tokens}
        with advised(), load_model(model, hf, quiet or as_json, **loading) as engine:
            found.append(_measure(engine, text, getattr(file, "name", ""), quiet or as_json, wanted))
    elif size is not None or any(wanted.values()):
        raise click.UsageError("there is no text: -c, --chunks, --chunk, --process-output and --parse-special need one")
    whole = found[0]
    for one in found[1:]:
        whole = whole.plus(one)
    with tidy():
        whole.save(out, legacy=form == "dat")
    _tell(whole, out, quiet, as_json)


def _measure(engine: Any, text: str, name: str, quiet: bool, wanted: dict[str, Any]) -> Any:
    from llamina.engine.importances import imatrix

    size, dataset = engine.context, "" if name == "<stdin>" else name
    with windows_meter(size, quiet) as progress:
        return imatrix(engine, text, chunk_size=size, dataset=dataset, progress=progress, **wanted)


def _tell(made: Any, out: Path, quiet: bool, as_json: bool) -> None:
    unseen = {name: int((counts == 0).sum()) for name, counts in made.counts.items() if (counts == 0).any()}
    if as_json:
        told = {"path": str(out), "tensors": len(made.sums), "chunks": made.chunks, "chunk_size": made.chunk_size}
        click.echo(json.dumps({**told, "datasets": list(made.datasets), "experts_without_tokens": unseen}))
        return
    if not quiet:
        note(f"{len(made.sums)} matrices, {made.chunks} chunks of {made.chunk_size} tokens")
        for name, count in list(unseen.items())[:3]:
            note(f"{name}: {count} of {len(made.counts[name])} experts saw no token: a longer text has more for them")
    click.echo(out)
