"""`llamina bench serve`: many requests, to an engine of this process or to a server at a URL."""

from pathlib import Path
from typing import Any

import click

from llamina.cli.llama_cpp import flash_option
from llamina.cli.measuring import (
    ANY,
    Counts,
    Rates,
    Ticker,
    against_option,
    command_line,
    gate,
    length_options,
    measured_options,
    model_file,
    output_options,
    plot_option,
    print_record,
    read_baseline,
)
from llamina.cli.options import cores, kv_option, threads_option
from llamina.cli.terminal import Meter

ENGINE_ONLY = {"hf", "shape", "prefix", "threads", "kv_type", "against", "repeats"}
URL_ONLY = {"rates", "total", "dataset", "seed", "api", "api_key", "ignore_eos", "plot"}


@click.command("serve")
@measured_options
@click.option("--url", metavar="URL", help="Measure the server with OpenAI's API that is there; -m is its model's id.")
@click.option(
    "-c",
    "--requests",
    type=Counts(1),
    default="16",
    show_default=True,
    help="Requests at a time; with --url, several numbers are several loads.",
)
@length_options(32, 128, 2)
@click.option(
    "--prefix",
    type=click.IntRange(16, 1 << 20),
    metavar="N",
    default=2000,
    show_default=True,
    help="Tokens of the first turn.",
)
@threads_option
@kv_option
@flash_option
@against_option
@click.option("--rate", "rates", type=Rates(), help="With --url: requests per second, at random times (open loop).")
@click.option(
    "--total", type=ANY, metavar="N", help="With --url: requests of each load; else 4 for each at a time, at least 16."
)
@click.option(
    "--dataset",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --url: prompts from a JSONL file (`prompt`, `messages`) in the place of random words.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="With --url: of the random words; a server with a prefix cache knows those of an earlier run.",
)
@click.option(
    "--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True, help="With --url."
)
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="With --url: sent as a bearer token.")
@click.option(
    "--ignore-eos/--stop-at-eos",
    default=True,
    show_default=True,
    help="With --url: whether answers go on to their length, by an extension that llamina, llama.cpp and vLLM have.",
)
@plot_option
@output_options
def serve_command(model: str | None, hf: str | None, url: str | None, **given: Any) -> int:
    """Measure what matters when serving many requests.

    Batching: requests at a time against one after the other. Prefix caching: time to first token of a second turn
    against the first. Grammars: the time of a token mask, and constrained answers against plain ones. Speculative
    decoding: answers with draft tokens against answers without.

    With --url: requests over HTTP, so many at a time (-c) or per second (--rate). Time to first token, time between
    tokens and time of whole answers, by percentiles; tokens per second of all answers together; errors.

    \b
    Examples:
      llamina bench serve -m smollm2
      llamina bench serve -m model.gguf -c 32 -n 64 --md
      llamina bench serve -m model.gguf --against llama-server
      llamina bench serve --url http://127.0.0.1:8080/v1 -c 1,16,64 --plot load.png
      llamina bench serve --url http://127.0.0.1:8080/v1 --rate 1,2,4 --total 100 --dataset prompts.jsonl
    """
    ctx = click.get_current_context()
    _check_options(ctx, url)
    earlier = read_baseline(given["baseline"])
    record = _measure_url(url, model, given, _is_given(ctx, "requests")) if url else _measure_engine(model, hf, given)
    from llamina.cli.rates import model_notes, serving_table, url_notes, url_table

    print_record(record, *((url_table, url_notes) if url else (serving_table, model_notes)), given)
    return gate(record, earlier, given["threshold"])


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _check_options(ctx: click.Context, url: str | None) -> None:
    """Raise UsageError for an option that has no effect here."""
    for param in ctx.command.params:
        if param.name in (ENGINE_ONLY if url else URL_ONLY) and _is_given(ctx, param.name):
            way = "leave one of them out" if url else "give the --url of a server"
            raise click.UsageError(f"{param.opts[-1]} has no effect {'with' if url else 'without'} --url: {way}")


def _measure_engine(model: str | None, hf: str | None, given: dict[str, Any]) -> dict[str, Any]:
    from llamina.bench import Load, Options, find_peer, measure_serving

    if len(given["requests"]) > 1 or given["requests"][0] < 2:
        raise click.UsageError(f"-c is {given['requests']}: without --url one number from 2 on is expected")
    peer = find_peer(given["against"], serving=True) if given["against"] else None
    asked = Load(given["requests"][0], given["prompt"], given["tokens"], given["prefix"])
    options = Options([], given["threads"] or cores(), given["repeats"], given["kv_type"], peer)
    with Ticker() as tick:
        return measure_serving(
            model_file(model, hf, given["shape"]), asked, options, command_line(), tick, tick.loading
        )


def _measure_url(url: str, model: str | None, given: dict[str, Any], closed: bool) -> dict[str, Any]:
    from llamina.bench import Asked, measure_url
    from llamina.bench.plot import check_plot, draw_loads
    from llamina.bench.url.arrivals import Arrivals, Concurrency, Rate
    from llamina.bench.url.prompts import read_dataset

    if given["plot"]:
        check_plot()
    loads: list[Arrivals] = [Rate(rate) for rate in given["rates"] or ()]
    if closed or not loads:
        loads = [*(Concurrency(count) for count in given["requests"]), *loads]
    asked = Asked(
        url,
        loads,
        model or "",
        given["api_key"] or "",
        given["api"],
        given["prompt"],
        given["tokens"],
        given["total"],
        read_dataset(given["dataset"]) if given["dataset"] else (),
        given["seed"],
        given["ignore_eos"],
    )
    with Meter("requests", doing="measuring") as meter:
        record = measure_url(asked, command_line(), meter)
    if given["plot"]:
        draw_loads(record, given["plot"])
    return record
