"""`llamina run`: a prompt in, an answer out."""

import time
from typing import Any

import click

from llamina.cli.constraints import constraint_options, take_constraint
from llamina.cli.options import (
    decode,
    device_options,
    json_option,
    kv_option,
    load_adapters,
    locate,
    lora_option,
    model_options,
    offload_options,
    text_of,
)
from llamina.cli.sampling import SampledCommand, given, sampling_options
from llamina.cli.terminal import Meter


def _limit(ctx: click.Context, param: click.Parameter, value: int) -> int | None:
    """-1 means until the context is full, as llama.cpp's users write it."""
    if value == 0 or value < -1:
        raise click.BadParameter(f"{value} is not a number of tokens: give at least 1, or -1 for no limit")
    return None if value == -1 else value


def _mode(ctx: click.Context, param: click.Parameter, value: str) -> str | int:
    return int(value) if value.isdecimal() else value


@click.command("run", cls=SampledCommand)
@click.argument("prompt", required=False)
@click.option("-p", "--prompt", "text", metavar="TEXT", help="The prompt, if it is not an argument.")
@click.option(
    "--file",
    type=click.File("rb"),
    help="Read the prompt, or what comes after it, from a file; - is stdin.",
)
@model_options
@click.option("--system", metavar="TEXT", help="A system message for the model's chat template.")
@click.option(
    "--session",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Go on with the conversation in FILE, or begin one, and save it there.",
)
@lora_option
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the chat template.")
@click.option(
    "-n",
    "--max-tokens",
    "--n-predict",
    type=int,
    default=256,
    show_default=True,
    callback=_limit,
    metavar="N",
    help="Tokens to generate at most; -1: until the context is full.",
)
@click.option(
    "--stop",
    "-r",
    "--reverse-prompt",
    multiple=True,
    metavar="TEXT",
    help="End before this text; several times.",
)
@click.option("--ignore-eos", is_flag=True, help="Go on where the model would end.")
@click.option("--logprobs", type=int, metavar="N", help="With --json, how likely tokens were, and the N likeliest.")
@constraint_options
@sampling_options
@click.option(
    "-c",
    "--ctx-size",
    "--n-ctx",
    "context",
    type=click.IntRange(min=2),
    metavar="N",
    help="Tokens of context.",
)
@click.option("--draft", metavar="FILE", help="A smaller model that guesses tokens ahead, or a folder of models.")
@click.option(
    "--speculate",
    default="auto",
    show_default=True,
    metavar="MODE",
    callback=_mode,
    help="Guess ahead: auto, ngram, draft, off, or a number of tokens. The answer is the same.",
)
@device_options
@kv_option
@offload_options
@json_option
@click.option("--verbose", is_flag=True, help="Show durations and rates.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing but the answer.")
def command(
    prompt: str | None,
    text: str | None,
    file: Any,
    model: str | None,
    hf: str | None,
    system: str | None,
    session: str | None,
    adapters: dict[str, float],
    raw: bool,
    threads: int | None,
    backend: str,
    context: int | None,
    kv_type: str,
    offload: str,
    memory_budget: int | None,
    draft: str | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    max_tokens: int | None,
    **options: Any,
) -> int:
    """Answer PROMPT, or what is piped in, with the model's own chat template if it has one.

    \b
    Examples:
      llamina run "What is the capital of France?"
      llamina run -m model.gguf --raw "Once upon a time" --temp 0 -n 100
      llamina run "Summarize this:" --file notes.txt
      git diff | llamina run --system "Write a commit message for this diff."
      llamina run "Is this spam? ..." --choice yes --choice no
      llamina run -hf user/repo:Q8_0 "Tell me a joke" --json
      llamina run --session talk.llamina "And why is that?"
      llamina run -m model.gguf --lora pirate.gguf --lora brief.gguf=0.5 "Who are you?"
    """
    from llamina.cli.answer import Answer, begin, open_session
    from llamina.engine.request import request_of

    question = _prompt(prompt, text, file)
    if raw and system:
        raise click.UsageError("--system is part of the chat template, which --raw leaves out: drop one of them")
    if raw and session:
        raise click.UsageError("--session is a conversation, and --raw leaves the chat template out: drop one of them")
    if options["logprobs"] is not None and not as_json:
        raise click.UsageError("--logprobs are told in JSON: add --json")
    options = {"max_tokens": max_tokens, "adapters": adapters, **take_constraint(options), **given(options)}
    request_of([0], options)  # mistakes are told before any download
    path = locate(model, hf, quiet)
    from llamina.engine import load

    start = time.perf_counter()
    with Meter("kernels", quiet) as meter:
        room: Any = {"kv_type": kv_type, "offload": offload, "memory_budget": memory_budget}
        engine = load(path, backend=backend, threads=threads, context=context, draft=draft, progress=meter, **room)
        options["adapters"] = load_adapters(engine, adapters)
    with engine:
        seconds = time.perf_counter() - start
        talk = open_session(engine, session, system) if session else None
        asked = talk.ask(question.rstrip("\n"), **options) if talk else begin(engine, question, system, raw, options)
        answer = Answer(asked, path, seconds)
        code = answer.print_json() if as_json else answer.print_text(verbose, quiet)
        if talk and session:
            talk.save(session)
        return code


def _prompt(prompt: str | None, text: str | None, file: Any) -> str:
    """The argument or `-p`, then the file; with neither, what is piped in."""
    if prompt is not None and text is not None:
        raise click.UsageError("the prompt is given twice: as an argument and with -p")
    given = prompt if prompt is not None else text
    if file is None:
        return text_of(given, "prompt")
    content = decode(file.read(), getattr(file, "name", "the file"))
    return text_of(f"{given}\n\n{content}" if given else content, "prompt")
