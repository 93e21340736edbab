"""`llamina perplexity`: how well a model foresees a text."""

import json
from typing import Any

import click

from llamina.cli.options import decode, load_adapters, text_of
from llamina.cli.reading import load_model, reading_options


@click.command("perplexity")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--tokens", "each", is_flag=True, help="Print each token with the logarithm of its probability.")
@reading_options
def command(
    file: Any,
    model: str | None,
    hf: str | None,
    adapters: dict[str, float],
    each: bool,
    context: int | None,
    threads: int | None,
    backend: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the perplexity of the text in FILE, or of what is piped in.

    It is exp of the mean of -log p over all tokens but the first. A text longer than the context is read in windows
    that overlap by half, so that a token has at least half a context before it.

    \b
    Examples:
      llamina perplexity wiki.txt -m model.gguf
      echo "Once upon a time" | llamina perplexity --tokens
    """
    text = text_of(decode(file.read(), file.name) if file else None, "text")
    with load_model(model, hf, quiet, backend=backend, threads=threads, context=context) as engine:
        found = engine.token_scores(text, adapters=load_adapters(engine, adapters))
        if as_json:
            listed = {"token_ids": found.tokens, "logprobs": found.logprobs} if each else {}
            click.echo(json.dumps({"perplexity": found.perplexity, "tokens": len(found.tokens), **listed}))
            return
        if each:
            for token, logprob in zip(found.tokens, found.logprobs, strict=True):
                click.echo(f"{logprob:10.4f}  {engine.tokenizer.token_text(token)!r}")
        click.echo(f"perplexity {found.perplexity:.4f} of {len(found.tokens)} tokens")
