"""`llamina embed`: embeddings of texts."""

import json
from typing import Any

import click

from llamina.cli.advice import advised
from llamina.cli.options import decode, load_adapters
from llamina.cli.reading import lines_of, load_model, reading_options
from llamina.cli.terminal import busy


@click.command("embed")
@click.argument("texts", nargs=-1, metavar="TEXT...")
@click.option(
    "--pooling",
    type=click.Choice(["mean", "max", "cls", "last", "rank"]),
    help="Pooling of the tokens' hidden states; by default the file's. rank: scores of the model's classifier.",
)
@click.option("--normalize/--no-normalize", default=True, show_default=True, help="Scale each vector to length 1.")
@click.option("--embd-normalize", type=click.Choice(["-1", "2"]), hidden=True)  # llama.cpp's numbers of norms
@click.option("-p", "--prompt", "lines", metavar="TEXT", help="Texts, a line for each, beside the arguments.")
@click.option("-f", "--file", type=click.File("rb"), help="The same, from a file.")
@reading_options
def command(
    texts: tuple[str, ...],
    model: str | None,
    hf: str | None,
    adapters: dict[str, float],
    pooling: str | None,
    normalize: bool,
    embd_normalize: str | None,
    lines: str | None,
    file: Any,
    context: int | None,
    threads: int | None,
    backend: str,
    device: int | None,
    step_tokens: int | None,
    gpu_layers: int | str | None,
    tensor_parallel: int,
    exact: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the embedding of each TEXT, or of each line that is piped in: one vector per line.

    \b
    Examples:
      llamina embed -m minilm.gguf "a llama" "an alpaca"
      llamina embed -m minilm.gguf --json < sentences.txt
      llamina embed -m qwen3.gguf --pooling last "a llama"
    """
    given = (lines or "") + "\n" + (decode(file.read(), file.name) if file else "")
    found = lines_of([*texts, *(line for line in given.splitlines() if line.strip())], "text")
    normalize = embd_normalize != "-1" if embd_normalize else normalize
    loading = {"backend": backend, "device": device, "threads": threads, "context": context, "step_tokens": step_tokens}
    loading |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
    with advised(), load_model(model, hf, quiet, **loading) as engine:
        scales = load_adapters(engine, adapters)
        with busy(f"computing {len(found)} embeddings", quiet):
            vectors = engine.embed(found, pooling=pooling, normalize=normalize, adapters=scales)  # type: ignore[arg-type]
        if not as_json:
            for vector in vectors:
                click.echo(" ".join(f"{x:.7g}" for x in vector))
            return
        rows = [
            {"index": i, "tokens": len(engine.encode(text, parse_special=False)), "embedding": vector.tolist()}
            for i, (text, vector) in enumerate(zip(found, vectors, strict=True))
        ]
        click.echo(json.dumps({"pooling": pooling or engine.pooling, "embeddings": rows}))
