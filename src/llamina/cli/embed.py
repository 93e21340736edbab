"""`llamina embed`: embeddings of texts and pictures."""

import json
from typing import Any

import click

from llamina.cli.advice import advised
from llamina.cli.options import decode, load_adapters, mmproj_option, picture
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
@click.option(
    "--image", "images", multiple=True, metavar="FILE|URL", help="Embed a picture, after the texts. May be repeated."
)
@mmproj_option
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
    images: tuple[str, ...],
    mmproj: str | None,
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

    Models that see, which have an mmproj file, embed pictures too: by the text model's hidden states of their rows.

    \b
    Examples:
      llamina embed -m minilm.gguf "a llama" "an alpaca"
      llamina embed -m minilm.gguf --json < sentences.txt
      llamina embed -m qwen3.gguf --pooling last "a llama"
      llamina embed -m qwen2-vl.gguf --image cat.jpg --image dog.jpg
    """
    given = (lines or "") + "\n" + (decode(file.read(), file.name) if file else "")
    typed = [*texts, *(line for line in given.splitlines() if line.strip())]
    found = typed if images else lines_of(typed, "text")
    shown = [picture(image) for image in images]
    normalize = embd_normalize != "-1" if embd_normalize else normalize
    loading = {"backend": backend, "device": device, "threads": threads, "context": context, "step_tokens": step_tokens}
    loading |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
    loading["mmproj"] = mmproj
    with advised(), load_model(model, hf, quiet, **loading) as engine:
        scales = load_adapters(engine, adapters)
        with busy(f"computing {len(found) + len(shown)} embeddings", quiet):
            prompts = [engine.encode(text, parse_special=False) for text in found]
            prompts += [engine.encode([part]) for part in shown]
            vectors = engine.embed(prompts, pooling=pooling, normalize=normalize, adapters=scales)  # type: ignore[arg-type]
        if not as_json:
            for vector in vectors:
                click.echo(" ".join(f"{x:.7g}" for x in vector))
            return
        rows = [
            {"index": i, "tokens": len(prompt), "embedding": vector.tolist()}
            for i, (prompt, vector) in enumerate(zip(prompts, vectors, strict=True))
        ]
        click.echo(json.dumps({"pooling": pooling or engine.pooling, "embeddings": rows}))
