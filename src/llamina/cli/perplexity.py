"""`llamina perplexity`: how well a model predicts a text."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.advice import advised
from llamina.cli.options import decode, load_adapters, text_of
from llamina.cli.reading import load_model, reading_options
from llamina.cli.terminal import Meter, busy

if TYPE_CHECKING:
    from llamina.engine import Engine

WINDOW = 512  # tokens, as in llama.cpp


@click.command("perplexity")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("-f", "--file", "other", type=click.File("rb"), help="The file, instead of the argument.")
@click.option(
    "--method",
    type=click.Choice(["llama.cpp", "overlap"]),
    default="llama.cpp",
    show_default=True,
    help="Which definition to use, see above.",
)
@click.option("--tokens", "each", is_flag=True, help="Print each scored token with its log-probability.")
@reading_options
def command(
    file: Any,
    other: Any,
    model: str | None,
    hf: str | None,
    adapters: dict[str, float],
    method: str,
    each: bool,
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
    """Print the perplexity of the text in FILE, or of what is piped in: exp of the mean of -log p of its tokens.

    --method llama.cpp gives the figures of llama-perplexity: the text, without one newline at its end, is cut into
    windows of -c tokens (512), each beginning with BOS where the model wants it, and only the second half of each is
    scored. The ± is the standard error. The text must have at least two windows.

    --method overlap scores every token but the first. A text longer than the context (-c; by default what the model was
    trained with, at most 8192) is read in windows that overlap by half.

    \b
    Examples:
      llamina perplexity wiki.txt -m model.gguf
      llamina perplexity wiki.txt -m model.gguf -c 2048 --json
      echo "Once upon a time" | llamina perplexity --method overlap --tokens
    """
    if file and other:
        raise click.UsageError("the file is given twice: as an argument and with -f")
    file = file or other
    text = text_of(decode(file.read(), file.name) if file else None, "text")
    measure = _in_windows if method == "llama.cpp" else _overlapping
    size = context or (WINDOW if method == "llama.cpp" else None)
    loading = {"backend": backend, "device": device, "threads": threads, "context": size, "step_tokens": step_tokens}
    loading |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
    with advised(), load_model(model, hf, quiet, **loading) as engine:
        found = measure(engine, text, load_adapters(engine, adapters), quiet)
        if as_json:
            listed = {"token_ids": found.tokens, "logprobs": found.logprobs} if each else {}
            click.echo(json.dumps({"method": method, **found.facts, **listed}))
            return
        if each:
            for token, logprob in zip(found.tokens, found.logprobs, strict=True):
                click.echo(f"{logprob:10.4f}  {engine.tokenizer.token_text(token)!r}")
        click.echo(found.line)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was measured: for JSON, for people, and token by token."""

    facts: dict[str, Any]
    line: str
    tokens: list[int]
    logprobs: list[float]


def _in_windows(engine: "Engine", text: str, adapters: dict[str, float], quiet: bool) -> _Found:
    """llama.cpp's definition, with windows as large as the context."""
    from llamina.bench.perplexity import measure_perplexity

    with Meter("windows", quiet, doing="reading") as meter:
        found = measure_perplexity(
            engine,
            text.removesuffix("\n"),  # as llama.cpp reads a file
            engine.context,
            lambda done, total: meter(f"{engine.context} tokens at a time", done, total),
            adapters,
        )
    whole, windows = found.estimate, found.windows
    facts = {
        "perplexity": whole.perplexity,
        "error": whole.error,
        "tokens": whole.count,
        "windows": windows,
        "window": engine.context,
    }
    line = (
        f"perplexity {whole.perplexity:.4f} ± {whole.error:.5f} of {whole.count} tokens, the second halves of "
        f"{windows} windows of {engine.context}"
    )
    return _Found(facts, line, found.tokens, found.logprobs)


def _overlapping(engine: "Engine", text: str, adapters: dict[str, float], quiet: bool) -> _Found:
    """All tokens but the first, in windows that overlap."""
    with busy("reading the text", quiet):
        found = engine.token_scores(text, adapters=adapters)
    facts = {"perplexity": found.perplexity, "tokens": len(found.tokens)}
    return _Found(
        facts, f"perplexity {found.perplexity:.4f} of {len(found.tokens)} tokens", found.tokens, found.logprobs
    )
