"""`llamina bench`: how fast models and kernels run on this machine, alone or against llama.cpp."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from llamina.cli.bench_energy import energy_command
from llamina.cli.bench_latency import latency_command
from llamina.cli.bench_memory import memory_command
from llamina.cli.bench_serve import serve_command
from llamina.cli.bench_speculative import speculative_command
from llamina.cli.bench_tokenizer import tokenizer_command
from llamina.cli.llama_cpp import flash_option
from llamina.cli.measuring import (
    Counts,
    Ticker,
    against_option,
    command_line,
    gate,
    isa_option,
    measured_options,
    model_file,
    output_options,
    plot_option,
    print_record,
    read_baseline,
)
from llamina.cli.options import cores, kv_option, threads_option, usable_threads


@click.group("bench", invoke_without_command=True)
@measured_options
@click.option(
    "-p",
    "--prompt-tokens",
    "--n-prompt",
    "prompts",
    type=Counts(0),
    default="512",
    show_default=True,
    help="Prompt lengths in tokens.",
)
@click.option(
    "-n",
    "--gen-tokens",
    "--n-gen",
    "--n-predict",
    "generates",
    type=Counts(0),
    default="128",
    show_default=True,
    help="Tokens to generate.",
)
@click.option(
    "-b", "--batch", "batches", type=Counts(1), default="1", show_default=True, help="Batch sizes: sequences at a time."
)
@click.option(
    "-d",
    "--depth",
    "--n-depth",
    "depths",
    type=Counts(0),
    default="0",
    show_default=True,
    help="Tokens in the KV cache before.",
)
@click.option("--warmup", "warmups", type=click.IntRange(min=0), default=1, hidden=True)  # runs before those measured
@threads_option
@kv_option
@flash_option
@against_option
@isa_option
@plot_option
@output_options
def command(model: str | None, hf: str | None, shape: str | None, plot: Path | None, **given: Any) -> int:
    """Measure prompt processing (pp) and token generation (tg) of a model, and its memory.

    -p, -n, -b and -d take several numbers separated by commas. Tokens are random with a fixed seed; rates are medians
    of -r runs. `first token` is the time for the whole prompt, GB/s the bytes of weights read per second of generation
    (of experts only those used), GMAC/s the multiply-adds with weights per second of prompt processing.

    \b
    Examples:
      llamina bench -m model.gguf
      llamina bench -m smollm2 -p 512 -n 128 -b 1,8,32 -d 0,4096
      llamina bench -m model.gguf --against llama.cpp --md
      llamina bench -m model.gguf --json > before.json
      llamina bench -m model.gguf --baseline before.json --threshold 5%
      llamina bench --shape llama-3-8b:Q4_K_M -p 128 -n 16 --csv
      llamina bench -m model.gguf --isa avx2,avx512
      llamina bench kernels --format Q4_K
      llamina bench serve -m model.gguf
      llamina bench serve --url http://127.0.0.1:8080/v1
      llamina bench latency -m model.gguf -c 1,8
      llamina bench memory -m model.gguf --plot memory.png
      llamina bench speculative -m model.gguf --draft small.gguf
      llamina bench energy -m model.gguf
      llamina bench tokenizer -m model.gguf
    """
    if click.get_current_context().invoked_subcommand:
        return 0
    from llamina.bench import find_peer
    from llamina.bench.plot import check_plot, draw_plot
    from llamina.cli.rates import isa_notes, isa_table, model_notes, model_table

    if given["isas"] and (plot or given["against"]):
        raise click.UsageError("--isa has no effect with --against and --plot: leave it out")
    earlier = read_baseline(given["baseline"])
    peer = find_peer(given["against"]) if given["against"] else None
    if plot:
        check_plot()
    record = _measure(model_file(model, hf, shape), peer, given)
    if plot:
        draw_plot(record, plot)
    print_record(record, *((isa_table, isa_notes) if given["isas"] else (model_table, model_notes)), given)
    return gate(record, earlier, given["threshold"])


@command.command("kernels")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="A format such as Q4_K; all unless given. May be repeated.",
)
@click.option("-t", "--threads", type=Counts(1), help="Numbers of threads; 1 and all usable cores unless given.")
@click.option(
    "--size",
    type=click.FloatRange(min=0),
    metavar="MB",
    default=64.0,
    show_default=True,
    help="MB of weights of the GEMV.",
)
@click.option(
    "-p",
    "--tokens",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=512,
    show_default=True,
    help="Tokens of the GEMM.",
)
@isa_option
@output_options
def kernels_command(
    formats: tuple[str, ...], threads: tuple[int, ...] | None, isas: tuple[str, ...] | None, **given: Any
) -> int:
    """Measure the matrix products of each format.

    GB/s of weights read by the GEMV (one token), GMAC/s of the GEMM (many tokens).

    \b
    Examples:
      llamina bench kernels
      llamina bench kernels --format Q4_K --format Q6_K -t 1,2,4
      llamina bench kernels --format Q4_K --isa avx2,avx512
      llamina bench kernels --json > kernels.json
      llamina bench kernels --baseline kernels.json --threshold 10%
    """
    from llamina.bench import measure_kernels
    from llamina.bench.isa import measure_kernel_isas
    from llamina.bench.kernels import Sizes
    from llamina.cli.rates import isa_notes, isa_table, kernel_notes, kernel_table

    earlier = read_baseline(given["baseline"])
    counts = dict.fromkeys(map(usable_threads, threads) if threads else (1, cores()))
    sizes = Sizes(int(given["size"] * 1e6), given["tokens"], given["repeats"])
    with Ticker() as tick:
        if isas:
            record = measure_kernel_isas(formats, list(counts), sizes, isas, command_line(), tick)
        else:
            record = measure_kernels(formats, list(counts), sizes, command_line(), tick, tick.loading)
    print_record(record, *((isa_table, isa_notes) if isas else (kernel_table, kernel_notes)), given)
    return gate(record, earlier, given["threshold"])


def _measure(path: Path, peer: Any, given: dict[str, Any]) -> dict[str, Any]:
    from llamina.bench import Options, grid, measure_model

    tasks = grid(given["prompts"], given["generates"], given["batches"], given["depths"])
    options = Options(tasks, given["threads"] or cores(), given["repeats"], given["kv_type"], peer)
    options = replace(options, warmups=given["warmups"])
    with Ticker() as tick:
        if given["isas"]:
            from llamina.bench.isa import measure_isas

            return measure_isas(path, given["isas"], options, command_line(), tick, tick.loading)
        return measure_model(path, options, command_line(), tick, tick.loading)


for _verb in (serve_command, latency_command, memory_command, speculative_command, energy_command, tokenizer_command):
    command.add_command(_verb)
