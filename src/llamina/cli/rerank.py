"""`llamina rerank`: documents sorted by how well they answer a query."""

import json

import click

from llamina.cli.advice import advised
from llamina.cli.options import load_adapters
from llamina.cli.reading import lines_of, load_model, reading_options
from llamina.cli.terminal import busy


@click.command("rerank")
@click.argument("query")
@click.argument("documents", nargs=-1, metavar="DOCUMENT...")
@click.option("-n", "--top", type=click.IntRange(min=1), metavar="N", help="Print only the N best documents.")
@reading_options
def command(
    query: str,
    documents: tuple[str, ...],
    model: str | None,
    hf: str | None,
    adapters: dict[str, float],
    top: int | None,
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
    """Print each DOCUMENT, or each line that is piped in, with its score for QUERY, best first.

    The model must have a classifier, as bge-reranker and Qwen3-Reranker do.

    \b
    Examples:
      llamina rerank -m reranker.gguf "what eats grass?" "a llama" "a rock"
      llamina rerank -m reranker.gguf "what eats grass?" --top 3 --json < documents.txt
    """
    found = lines_of(documents, "document")
    loading = {"backend": backend, "device": device, "threads": threads, "context": context, "step_tokens": step_tokens}
    loading |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
    with advised(), load_model(model, hf, quiet, **loading) as engine:
        scales = load_adapters(engine, adapters)
        with busy(f"scoring {len(found)} documents", quiet):
            scores = engine.rerank(query, found, adapters=scales)
    best = sorted(range(len(found)), key=lambda i: -scores[i])[:top]
    if as_json:
        rows = [{"index": i, "score": float(scores[i]), "document": found[i]} for i in best]
        click.echo(json.dumps({"query": query, "results": rows}, ensure_ascii=False))
        return
    for i in best:
        click.echo(f"{scores[i]:10.6f}  {found[i]}")
