"""`llamina perplexity`: how well a model predicts a text."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.advice import advised
from llamina.cli.options import load_adapters
from llamina.cli.reading import load_base, load_model, one_file, reading_options, whole_text, windows_meter
from llamina.cli.terminal import busy, tidy

if TYPE_CHECKING:
    from llamina.bench.divergence import Predictions
    from llamina.bench.saved_logits import SavedLogits
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
@click.option(
    "--kl",
    "base",
    metavar="BASE",
    help="Compare with the predictions of BASE: a model, or a file of --save-logits.",
)
@click.option(
    "--save-logits",
    "--save-all-logits",
    "save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT",
    help="Write the predictions to a file for --kl, and for llama-perplexity's --kl-divergence-base.",
)
@click.option("--chunks", type=click.IntRange(min=1), metavar="N", help="Read the first N windows only.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PNG",
    help="With --kl: draw how divergences and probabilities are spread. Needs matplotlib.",
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
    base: str | None,
    save: Path | None,
    chunks: int | None,
    plot: Path | None,
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

    --kl BASE tells how far the model's predictions are from those of BASE, mostly the model before it was quantized:
    the KL divergence (mean, percentiles), how often the likeliest token is the same, and how much the probability of
    the text's tokens changes (Δp), all as llama-perplexity defines them. A file of --save-logits has the text in it.

    \b
    Examples:
      llamina perplexity wiki.txt -m model.gguf
      llamina perplexity wiki.txt -m model-Q4_K_M.gguf --kl model-F16.gguf --plot q4_k_m.png
      llamina perplexity wiki.txt -m model-F16.gguf --save-logits f16.logits
      llamina perplexity -m model-Q4_K_M.gguf --kl f16.logits --json
      llamina perplexity wiki.txt -m model.gguf -c 2048 --json
      echo "Once upon a time" | llamina perplexity --method overlap --tokens
    """
    file = one_file(file, other)
    options = {"--kl": base, "--save-logits": save, "--chunks": chunks}
    if method != "llama.cpp" and any(options.values()):
        raise click.UsageError(f"{', '.join(o for o, v in options.items() if v)}: these need --method llama.cpp")
    if plot or (base and (save or each)):
        _check_kl(base, save, each, plot)
    known = _saved(base, file, context, chunks)
    text = "" if known else whole_text(file)
    size = known.size if known else context or (WINDOW if method == "llama.cpp" else None)
    loading = {"backend": backend, "device": device, "threads": threads, "context": size, "step_tokens": step_tokens}
    loading |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
    with advised(), load_model(model, hf, quiet, **loading) as engine, ExitStack() as others:
        used = load_adapters(engine, adapters)
        if base is not None:
            against: Predictions | None = known
            if against is None:
                second = others.enter_context(load_base(base, quiet, **loading))
                against = _base(engine, second, text, chunks)
            _diverge(engine, against, used, base, plot, quiet, as_json)
            return
        found = (
            _in_windows(engine, text, used, quiet, chunks, save)
            if method == "llama.cpp"
            else _overlapping(engine, text, used, quiet)
        )
        if as_json:
            listed = {"token_ids": found.tokens, "logprobs": found.logprobs} if each else {}
            click.echo(json.dumps({"method": method, **found.facts, **listed}))
            return
        if each:
            for token, logprob in zip(found.tokens, found.logprobs, strict=True):
                click.echo(f"{logprob:10.4f}  {engine.tokenizer.token_text(token)!r}")
        click.echo(found.line)


def _check_kl(base: str | None, save: Path | None, each: bool, plot: Path | None) -> None:
    if plot and not base:
        raise click.UsageError("--plot draws what --kl finds: give --kl BASE")
    if save or each:
        raise click.UsageError("--kl does not go with --save-logits or --tokens: leave one of them out")
    from llamina.bench.plot import check_plot

    check_plot()


def _saved(base: str | None, file: Any, context: int | None, chunks: int | None) -> "SavedLogits | None":
    """The saved logits that are meant by BASE; None if it is a model, or not given."""
    from llamina.bench.saved_logits import SavedLogits, is_saved

    if base is None or not is_saved(Path(base)):
        return None
    known = SavedLogits(base)
    if file:
        raise click.UsageError(f"{base} has the tokens of its text in it: give no other text with it")
    if context not in (None, known.size):
        raise click.UsageError(f"{base} has windows of {known.size} tokens: leave out -c")
    if chunks is not None:
        del known.windows[chunks:]
    return known


def _base(engine: "Engine", other: "Engine", text: str, chunks: int | None) -> "Predictions":
    """Another model as the base. Raises RequestError if it has other tokens."""
    from llamina.bench.divergence import ModelBase
    from llamina.errors import RequestError

    text = text.removesuffix("\n")
    if engine.encode(text, parse_special=False) != other.encode(text, parse_special=False):
        raise RequestError("the base makes other tokens of the text than the model: it must have its vocabulary", "kl")
    return ModelBase(other, text, engine.context, chunks)


def _diverge(
    engine: "Engine",
    base: "Predictions",
    adapters: dict[str, float],
    name: str,
    plot: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare with the base, and tell."""
    from llamina.bench.divergence import measure_divergence
    from llamina.bench.plot import draw_divergence

    size = len(base.windows[0])
    with windows_meter(size, quiet, "comparing") as progress:
        found = measure_divergence(engine, base, progress, adapters)
    facts = {"method": "llama.cpp", **found.facts, "windows": len(base.windows), "window": size}
    if plot:
        draw_divergence(found, f"{Path(engine.runner.file.source).name} beside {Path(name).name}", plot)
    if as_json:
        click.echo(json.dumps(facts))
        return
    kl, change, same = (facts[key] for key in ("kl", "probability_change", "same_top"))
    whole, first, ratio = found.perplexity, facts["base"], facts["ratio"]
    click.echo(
        f"perplexity {whole.perplexity:.4f} ± {whole.error:.5f} of {whole.count} tokens, of the base "
        f"{first['perplexity']:.4f} ± {first['error']:.5f}: {ratio['mean']:.4f} ± {ratio['error']:.4f} times"
    )
    spread = ", ".join(f"{p} % {kl['percentiles'][p]:.6f}" for p in ("50", "90", "99", "99.9"))
    click.echo(f"KL divergence {kl['mean']:.6f} ± {kl['error']:.6f}; {spread}, at most {kl['max']:.6f}")
    click.echo(
        f"the same top token {100 * same['mean']:.3f} ± {100 * same['error']:.3f} %; Δp {100 * change['mean']:.3f} ± "
        f"{100 * change['error']:.3f} %, RMS {100 * change['rms']:.3f} ± {100 * change['rms_error']:.3f} %"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What was measured: for JSON, for people, and token by token."""

    facts: dict[str, Any]
    line: str
    tokens: list[int]
    logprobs: list[float]


def _in_windows(
    engine: "Engine", text: str, adapters: dict[str, float], quiet: bool, chunks: int | None, save: Path | None
) -> _Found:
    """llama.cpp's definition, with windows as large as the context."""
    from llamina.bench.divergence import save_logits
    from llamina.bench.perplexity import measure_perplexity

    text = text.removesuffix("\n")  # as llama.cpp reads a file
    with tidy(), windows_meter(engine.context, quiet) as progress:
        if save:
            found = save_logits(engine, text, engine.context, save, progress, adapters, chunks)
        else:
            found = measure_perplexity(engine, text, engine.context, progress, adapters, chunks)
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
